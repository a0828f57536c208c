//! Asking a server binary for its version. Runs it with its version flag and nothing else, and
//! gives up on one that does not answer.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::Launch;

/// A binary that says its version does so at once; one that started to serve never ends.
const TIMEOUT: Duration = Duration::from_secs(10);

/// More than this is no answer to a question for the version.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;

/// How a server binary is asked for its version.
#[derive(Debug)]
pub struct Probe {
    /// The binary's usual names, looked for on `PATH`.
    pub programs: &'static [&'static str],
    /// The arguments that make it print its version.
    pub args: &'static [&'static str],
    /// The answers it may give.
    pub answers: &'static [Answer],
}

/// A line by which a server says its version.
#[derive(Debug)]
pub struct Answer {
    /// The text right before the version at the start of a line.
    pub before: &'static str,
    /// What the version is called in the catalogue: this, and then the version.
    pub prefix: &'static str,
}

/// Starts a server to ask for its version, and returns that; the error says what it did instead.
pub(super) fn version_of(launch: &Launch, probe: &Probe) -> Result<String, String> {
    let words: Vec<_> = launch.words().iter().map(String::as_str).collect();
    let asked = format!("`{}`", [&words, probe.args].concat().join(" "));
    // Why a binary does not start (a missing library, say) is on its standard error.
    let piped = std::io::pipe().and_then(|(pipe, end)| Ok((pipe, end.try_clone()?, end)));
    let (pipe, stdout, stderr) = piped.map_err(|error| format!("cannot make a pipe: {error}"))?;
    let mut child = Command::new(launch.program())
        .args(&words[1..])
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
    let mut said = probe.answers.iter();
    said.find_map(|answer| parse(&text, answer)).ok_or_else(|| {
        let said = text
            .lines()
            .next()
            .unwrap_or("nothing")
            .trim()
            .chars()
            .take(120);
        let said: String = said.collect();
        let lines = probe.answers.iter();
        let lines: Vec<_> = lines
            .map(|one| format!("\"{}VERSION\"", one.before))
            .collect();
        let lines = lines.join(" or ");
        format!("{asked} should print a line {lines}, but printed: {said}")
    })
}

/// The version in the first line that gives this answer.
fn parse(text: &str, answer: &Answer) -> Option<String> {
    let version = text.lines().find_map(|line| {
        let word = line
            .strip_prefix(answer.before)?
            .split_whitespace()
            .next()?;
        // Java puts it in quotes.
        let word = word.trim_matches('"');
        word.starts_with(|first: char| first.is_ascii_digit())
            .then_some(word)
    })?;
    // Debian's ZooKeeper 3.4 reports its Debian revision, too; a pre-release begins with a letter.
    let version = match version.split_once('-') {
        Some((upstream, rest)) if rest.starts_with(|first: char| first.is_ascii_digit()) => {
            upstream
        }
        _ => version,
    };
    Some(format!("{}{version}", answer.prefix))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::catalogue;
    use super::*;

    const ETCD: Answer = Answer {
        before: "etcd Version: ",
        prefix: "",
    };

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
            assert_eq!(parse(text, &ETCD).as_deref(), Some(version));
        }
    }

    fn at(path: &str) -> Launch {
        Launch::direct(Path::new(path))
    }

    #[test]
    fn the_answers_of_the_others() {
        // As Debian's builds print them.
        for (backend, text, version) in [
            (
                "consul",
                "Consul v1.8.7\nProtocol 2 spoken by default, understands 2 to 3 (agent will automatically use protocol >2 when speaking to compatible agents)\n\n",
                "1.8.7",
            ),
            (
                "redis",
                "Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=6d95e1af3a2c082a\n",
                "6.0.16",
            ),
            (
                "redis",
                "Valkey server v=8.1.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=384b3c0d511f998a\n",
                "valkey-8.1.1",
            ),
            ("zookeeper", "3.4.13-6\n", "3.4.13"),
            (
                "zookeeper",
                "3.8.0\n[main] INFO org.apache.zookeeper.util.ServiceUtils - Exiting JVM with code 0\n",
                "3.8.0",
            ),
            (
                "java",
                "openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)\n",
                "17.0.15",
            ),
            ("java", "java version \"1.8.0_392\"\n", "1.8.0_392"),
        ] {
            let probe = catalogue::backend(backend).unwrap().probe.as_ref().unwrap();
            let mut found = probe.answers.iter();
            let found = found.find_map(|answer| parse(text, answer));
            assert_eq!(found.as_deref(), Some(version), "{text}");
        }
    }

    #[test]
    fn other_answers_are_none() {
        for text in [
            "",
            "etcdctl version: 3.5.16\n",
            "etcd Version: \n",
            " etcd Version: 3\n",
        ] {
            assert_eq!(parse(text, &ETCD), None, "{text:?}");
        }
    }

    #[test]
    fn a_program_that_is_no_etcd_is_told_apart() {
        let probe = Probe {
            programs: &["etcd"],
            args: &["hello"],
            answers: &[ETCD],
        };
        let error = version_of(&at("/bin/echo"), &probe).unwrap_err();
        assert!(
            error.contains("etcd Version: VERSION") && error.ends_with("hello"),
            "{error}"
        );
        let error = version_of(&at("/nonexistent/etcd"), &probe).unwrap_err();
        assert!(error.contains("does not run here"), "{error}");
    }

    #[test]
    fn what_it_says_on_standard_error_is_told() {
        let probe = Probe {
            programs: &["ls"],
            args: &["/nonexistent/library"],
            answers: &[ETCD],
        };
        let error = version_of(&at("/bin/ls"), &probe).unwrap_err();
        assert!(
            error.contains("printed: ") && error.contains("No such file"),
            "{error}"
        );
    }

    #[test]
    fn an_endless_answer_is_cut_off() {
        // `yes` never ends by itself; the pipe is closed on it after the longest answer.
        let probe = Probe {
            programs: &["yes"],
            args: &["no version"],
            answers: &[ETCD],
        };
        let error = version_of(&at("/usr/bin/yes"), &probe).unwrap_err();
        assert!(error.ends_with("no version"), "{error}");
    }
}
