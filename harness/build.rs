//! Tells the binary which commit it was built from.

use std::process::Command;

fn main() {
    // The log of HEAD changes with every commit; where there is no git there is nothing to watch.
    println!("cargo::rerun-if-changed=../.git/logs/HEAD");
    println!("cargo::rerun-if-changed=build.rs");
    let commit = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output();
    let commit = commit.ok().filter(|output| output.status.success());
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!(
        "cargo::rustc-env=FENCEPOST_COMMIT={}",
        commit.unwrap_or_else(|| "unknown".to_owned())
    );
}
