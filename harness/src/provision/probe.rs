//! Asking a server binary for its version. Runs it with its version flag and nothing else, and
//! gives up on one that does not answer.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A binary that says its version does so at once; one that started to serve never ends.
const TIMEOUT: Duration = Duration::from_secs(10);

/// More than this is no answer to a question for the version.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;

/// How a server binary is asked for its version.
#[derive(Debug)]
pub struct Probe {
    /// The binary's usual name, looked for on `PATH`.
    pub program: &'static str,
    /// The arguments that make it print its version.
    pub args: &'static [&'static str],
    /// The text right before the version at the start of a line of the answer.
    pub before: &'static str,
}

/// Runs the binary at `path` and returns the version it reports; the error says what it did
/// instead.
pub(super) fn version_of(path: &Path, probe: &Probe) -> Result<String, String> {
    let asked = format!("`{} {}`", path.display(), probe.args.join(" "));
    // Why a binary does not start (a missing library, say) is on its standard error.
    let piped = std::io::pipe().and_then(|(pipe, end)| Ok((pipe, end.try_clone()?, end)));
    let (pipe, stdout, stderr) = piped.map_err(|error| format!("cannot make a pipe: {error}"))?;
    let mut child = Command::new(path)
        .args(probe.args)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .map_err(|error| format!("it does not run here: {error}"))?;
    let (send, answer) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        // An answer cut short by an error is parsed as far as it goes.
        let _ = pipe.take(MAX_ANSWER_BYTES).read_to_end(&mut text);
        let _ = send.send(text);
    });
    let text = answer.recv_timeout(TIMEOUT);
    // Either it has said all, or it is not going to: it must not be left running.
    let _ = child.kill();
    let _ = child.wait();
    let text = text.map_err(|_| format!("{asked} did not end within {} s", TIMEOUT.as_secs()))?;
    let text = String::from_utf8_lossy(&text);
    parse(&text, probe.before).map(Into::into).ok_or_else(|| {
        let said = text
            .lines()
            .next()
            .unwrap_or("nothing")
            .trim()
            .chars()
            .take(120);
        let said: String = said.collect();
        format!(
            "{asked} should print a line \"{}VERSION\", but printed: {said}",
            probe.before
        )
    })
}

/// The word after `before`, in the first line that starts with it.
fn parse<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(before)?.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETCD: &str = "etcd Version: ";

    #[test]
    fn the_answers_of_each_etcd_generation() {
        // As Debian's builds print them.
        for (text, version) in [
            (
                "etcd Version: 3.3.25\nGit SHA: Not provided (use ./build instead of go build)\nGo Version: go1.15.9\nGo OS/Arch: linux/amd64\n",
                "3.3.25",
            ),
            (
                "etcd Version: 3.4.23\nGit SHA: Not provided (use ./build instead of go build)\nGo Version: go1.19.8\nGo OS/Arch: linux/amd64\n",
                "3.4.23",
            ),
            (
                "etcd Version: 3.5.16\nGit SHA: Not provided (use ./build instead of go build)\nGo Version: go1.24.0\nGo OS/Arch: linux/amd64\n",
                "3.5.16",
            ),
            (
                "etcd Version: 3.5.30\nGit SHA: Not provided (use ./build instead of go build)\nGo Version: go1.26.4\nGo OS/Arch: linux/amd64\n",
                "3.5.30",
            ),
            // A warning before it, and a pre-release.
            (
                "[WARNING] deprecated\netcd Version: 3.6.0-rc.1\r\n",
                "3.6.0-rc.1",
            ),
        ] {
            assert_eq!(parse(text, ETCD), Some(version));
        }
    }

    #[test]
    fn the_answer_of_consul() {
        let text = "Consul v1.8.7\nProtocol 2 spoken by default, understands 2 to 3 (agent will automatically use protocol >2 when speaking to compatible agents)\n\n";
        assert_eq!(parse(text, "Consul v"), Some("1.8.7"));
    }

    #[test]
    fn other_answers_are_none() {
        for text in [
            "",
            "etcdctl version: 3.5.16\n",
            "etcd Version: \n",
            " etcd Version: 3\n",
        ] {
            assert_eq!(parse(text, ETCD), None, "{text:?}");
        }
    }

    #[test]
    fn a_program_that_is_no_etcd_is_told_apart() {
        let probe = Probe {
            program: "etcd",
            args: &["hello"],
            before: ETCD,
        };
        let error = version_of(Path::new("/bin/echo"), &probe).unwrap_err();
        assert!(
            error.contains("etcd Version: VERSION") && error.ends_with("hello"),
            "{error}"
        );
        let error = version_of(Path::new("/nonexistent/etcd"), &probe).unwrap_err();
        assert!(error.contains("does not run here"), "{error}");
    }

    #[test]
    fn what_it_says_on_standard_error_is_told() {
        let probe = Probe {
            program: "ls",
            args: &["/nonexistent/library"],
            before: ETCD,
        };
        let error = version_of(Path::new("/bin/ls"), &probe).unwrap_err();
        assert!(
            error.contains("printed: ") && error.contains("No such file"),
            "{error}"
        );
    }

    #[test]
    fn an_endless_answer_is_cut_off() {
        // `yes` never ends by itself; the pipe is closed on it after the longest answer.
        let probe = Probe {
            program: "yes",
            args: &["no version"],
            before: ETCD,
        };
        let error = version_of(Path::new("/usr/bin/yes"), &probe).unwrap_err();
        assert!(error.ends_with("no version"), "{error}");
    }
}
