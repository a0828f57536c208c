//! What the fuzz targets of the readers share: read whatever comes, and judge what was read.

use checkers::foreign::{Foreign, Options};
use checkers::judge::{Question, judge};
use checkers::search::wgl::Limits;

/// The first byte chooses the model, the rest is the file, which begins with `prefix`.
pub(crate) fn read_and_judge(prefix: &[u8], data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else {
        return;
    };
    let names = ["mutex", "owner-mutex", "reentrant-fenced", "semaphore:2", "cas-register", "set"];
    let name = names[choice as usize % names.len()];
    let question = Question {
        model: name.parse().expect("a model"),
        name: name.to_owned(),
        initial: None,
        limits: Limits { cache_bytes: 1 << 20 },
    };
    let mut options = Options::new(question.model.shape());
    options.keyed = choice & 0x80 != 0;
    let file = [prefix, rest].concat();
    let mut foreign = match Foreign::read_from(&file[..], "fuzz", &options) {
        Ok(foreign) => foreign,
        Err(error) => {
            // It must say something, whatever it was.
            assert!(!error.to_string().is_empty());
            match error.partial {
                Some(partial) => *partial,
                None => return,
            }
        }
    };
    let report = judge(&mut foreign, &question);
    assert_eq!(report.witnesses.is_empty(), report.verdict != checkers::check::Verdict::Invalid);
}
