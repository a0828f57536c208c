//! Every scenario file of the repository is in order and has a control.

use std::path::{Path, PathBuf};

use harness::known::known;
use harness::scenario::{Scenario, render};

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            files.push(path);
        }
    }
    files
}

#[test]
fn every_scenario_resolves_and_has_a_control_arm() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let files = files(&folder);
    assert!(files.len() >= 5, "found only {files:?}");
    for file in files {
        let resolved = Scenario::load(&file, &known())
            .and_then(|scenario| scenario.resolve(&[], 1, None))
            .unwrap_or_else(|errors| panic!("{}", render(&errors)));
        let name = file.display();
        assert!(
            resolved.arms.iter().all(|arm| !arm.expect.is_empty()),
            "{name}: an arm expects nothing"
        );
        // A control shows that the detector stays silent: some arm in which a harm must not occur.
        let silent = |arm: &harness::scenario::ArmPlan| {
            let harms = [
                "lost_writes",
                "overlapping_terms",
                "double_grants",
                "expired_grants",
            ];
            arm.expect.iter().any(|one| {
                harms.contains(&one.metric.as_str()) && one.holds(0.0) && !one.holds(1.0)
            })
        };
        assert!(
            resolved.arms.iter().any(silent),
            "{name} has no control arm"
        );
    }
}
