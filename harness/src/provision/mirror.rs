//! Which mirror of Debian's main archive the machine is configured with, read from apt's own list
//! of what it would index. Pure text: it runs nothing and knows no host.

use std::cmp::Reverse;

/// The format for `apt-get indextargets` that [`choose`] reads. The origin comes last because it
/// may have spaces; apt leaves `$(ORIGIN)` as it is before the first `apt-get update`.
pub(super) const FORMAT: &str = "$(SITE) $(RELEASE) $(COMPONENT) $(ORIGIN)";

/// The suites of Debian's main archive that a machine may be configured with. Suites like
/// `bookworm-security` are other archives.
const SUITES: &[&str] = &[
    "stable",
    "oldstable",
    "oldoldstable",
    "testing",
    "unstable",
    "sid",
    "buster",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
];

struct Target<'a> {
    site: &'a str,
    release: &'a str,
    component: &'a str,
    origin: Option<&'a str>,
}

/// The site that most likely serves Debian's main archive, best one that is configured for `wanted`
/// itself. The error says what there is instead.
///
/// Third parties serve suites of the same names (and sign them with their own keys, so that a
/// wrong guess is refused by apt, not trusted). What tells Debian apart is, in this order: the
/// origin in the signed index if apt has one, a path that ends in `/debian`, and a
/// `-updates` suite on the same site.
pub(super) fn choose(indextargets: &str, wanted: &str) -> Result<String, String> {
    let targets: Vec<_> = indextargets.lines().filter_map(parse).collect();
    let has_updates = |target: &Target| {
        let updates = format!("{}-updates", target.release);
        targets
            .iter()
            .any(|other| other.site == target.site && other.release == updates)
    };
    let best = targets
        .iter()
        .filter(|target| SUITES.contains(&target.release) && target.component == "main")
        .filter(|target| target.origin.is_none_or(|origin| origin == "Debian"))
        .filter(|target| !target.site.starts_with("cdrom:"))
        .min_by_key(|target| {
            Reverse((
                target.origin.is_some(),
                target.site.trim_end_matches('/').ends_with("/debian"),
                has_updates(target) || target.release == wanted,
                target.release == wanted,
            ))
        });
    best.map(|target| target.site.into())
        .ok_or_else(|| describe(&targets))
}

fn parse(line: &str) -> Option<Target<'_>> {
    let mut words = line.splitn(4, ' ');
    let (site, release, component) = (words.next()?, words.next()?, words.next()?);
    let origin = words.next().map(str::trim).filter(|word| !word.is_empty());
    let origin = origin.filter(|word| !word.starts_with("$("));
    Some(Target {
        site,
        release,
        component,
        origin,
    })
}

fn describe(targets: &[Target<'_>]) -> String {
    let mut releases: Vec<_> = targets.iter().map(|target| target.release).collect();
    releases.sort_unstable();
    releases.dedup();
    match releases.len() {
        0 => "no sources at all".into(),
        _ => format!("only: {}", releases.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_archive_is_taken_and_not_its_neighbours() {
        let usual = "http://m/debian-security bookworm-security main Debian\n\
                     https://vendor.example bookworm main Vendor\n\
                     https://vendor.example/linux/debian bookworm stable $(ORIGIN)\n\
                     http://m/debian bookworm main Debian\n\
                     http://m/debian bookworm-updates main Debian\n";
        assert_eq!(choose(usual, "sid").unwrap(), "http://m/debian");
    }

    #[test]
    fn before_the_first_update_the_path_and_the_updates_suite_decide() {
        let by_path =
            "https://v.example bookworm main $(ORIGIN)\nhttp://m/debian/ stable main $(ORIGIN)\n";
        assert_eq!(choose(by_path, "sid").unwrap(), "http://m/debian/");
        let by_updates = "https://v.example trixie main $(ORIGIN)\n\
                          mirror+file:/etc/apt/mirrors/d.list trixie main $(ORIGIN)\n\
                          mirror+file:/etc/apt/mirrors/d.list trixie-updates main $(ORIGIN)\n";
        assert_eq!(
            choose(by_updates, "sid").unwrap(),
            "mirror+file:/etc/apt/mirrors/d.list"
        );
    }

    #[test]
    fn a_source_for_the_wanted_suite_is_preferred() {
        let old = "http://m/debian trixie main Debian\nhttp://m/debian trixie-updates main Debian\n\
                   http://old/debian bullseye main Debian\n";
        assert_eq!(choose(old, "bullseye").unwrap(), "http://old/debian");
        assert_eq!(choose(old, "sid").unwrap(), "http://m/debian");
    }

    #[test]
    fn other_distributions_have_no_debian_mirror() {
        let ubuntu =
            "http://u/ubuntu jammy main Ubuntu\nhttp://u/ubuntu jammy-updates main Ubuntu\n";
        assert_eq!(
            choose(ubuntu, "sid").unwrap_err(),
            "only: jammy, jammy-updates"
        );
        assert_eq!(choose("", "sid").unwrap_err(), "no sources at all");
        let raspbian = "http://r/raspbian bookworm main Raspbian\n";
        assert!(choose(raspbian, "bookworm").is_err());
    }
}
