//! One bad file for each kind of mistake, with the text that its author gets to read.

use super::*;

/// Error texts of a group of bad files, in one snapshot.
fn snapshot(group: &str, cases: &[(&str, String)]) {
    let texts: Vec<String> = cases
        .iter()
        .map(|(case, text)| {
            let errors = parse(text).expect_err(case);
            format!("### {case}\n{}\n", render(&errors))
        })
        .collect();
    insta::assert_snapshot!(group, texts.join("\n"));
}

#[test]
fn in_the_file_as_such() {
    snapshot(
        "file",
        &[
            ("empty", String::new()),
            ("not TOML", "title = \"x\ncluster = {".to_owned()),
            ("key twice", with("nodes    = 3", "nodes = 3\nnodes = 5")),
            (
                "number too large",
                with("clients  = 5", "clients = 99999999999999999999"),
            ),
            ("table missing", with("[cluster]", "[clutser]")),
            ("table twice", with("[cluster]", "[[cluster]]")),
            ("fault as a single table", with("[[fault]]", "[fault]")),
            (
                "value where a table must be",
                format!(
                    "workload = 5\n{}",
                    EXAMPLE.split("[workload]").next().unwrap_or("")
                ),
            ),
            ("claims", with("[10, 11]", "[10, 0, 36, \"x\", 10]")),
            (
                "title empty",
                with(
                    "\"etcd: a lock alone loses writes when its holder pauses\"",
                    "\" \"",
                ),
            ),
            ("trials", with("claims =", "trials = 0\nclaims =")),
            ("seed", with("claims =", "seed = -1\nclaims =")),
        ],
    );
}

#[test]
fn in_the_cluster() {
    snapshot(
        "cluster",
        &[
            (
                "unknown backend",
                with("\"etcd\"\nversion", "\"etdc\"\nversion"),
            ),
            ("unknown version", with("\"3.5.16\"", "\"3.5.61\"")),
            ("version is a number", with("\"3.5.16\"", "3.5")),
            ("nodes", with("nodes    = 3", "nodes = 2")),
            ("nodes as a text", with("nodes    = 3", "nodes = \"3\"")),
            (
                "bug in a real server",
                with("nodes    = 3", "bug = \"double-grant\""),
            ),
            (
                "election too short",
                with(
                    "nodes    = 3",
                    "tuning = { heartbeat = \"1s\", election = \"1s\" }",
                ),
            ),
            (
                "tuning not in whole milliseconds",
                with("nodes    = 3", "tuning.heartbeat = \"1.5us\""),
            ),
            (
                "unknown tuning",
                with("nodes    = 3", "tuning.heartbeet = \"1s\""),
            ),
        ],
    );
}

#[test]
fn in_the_workload() {
    let discipline = |word: &str| {
        with(
            "clients  = 5",
            &format!("clients = 5\ndiscipline = \"{word}\""),
        )
    };
    snapshot(
        "workload",
        &[
            ("unknown key", with("clients  = 5", "clinets = 5")),
            (
                "unknown key that belongs elsewhere",
                with("clients  = 5", "clients = 5\nnodes = 3"),
            ),
            ("unknown word", discipline("tokens")),
            ("duration without unit", with("\"2s\"", "\"5\"")),
            ("duration with a long unit", with("\"2s\"", "\"5 sec\"")),
            ("duration as a number", with("\"60s\"", "60")),
            ("duration of nothing", with("\"60s\"", "\"0s\"")),
            ("range reversed", with("\"0s..2s\"", "\"2s..0s\"")),
            ("ttl below the backend's least", with("\"2s\"", "\"500ms\"")),
            ("too many clients", with("clients  = 5", "clients = 10001")),
            (
                "more workers than clients",
                with("clients  = 5", "clients = 5\nworkers = 6"),
            ),
            (
                "no resource",
                with("resource = \"memory\"           #", "#"),
            ),
            (
                "a resource that nothing uses",
                with("\"guarded-set\"", "\"mutex\""),
            ),
            (
                "lock of another backend",
                with("\"etcd-v3lock\"", "\"builtin-lease\""),
            ),
            ("discipline that the lock lacks", discipline("session")),
            ("txn outside the store", discipline("txn")),
            (
                "tokens that nobody looks at",
                with("\"memory\"", "\"etcd\"\ntokens = \"enforce\""),
            ),
            (
                "keep_alive",
                with("clients  = 5", "clients = 5\nkeep_alive = \"no\""),
            ),
            ("rate", with("clients  = 5", "clients = 5\nrate = 0")),
        ],
    );
}

#[test]
fn in_a_fault() {
    let when = |table: &str| with("{ every = \"5s\" }", table);
    let target = |name: &str| with("\"holder\"", &format!("\"{name}\""));
    snapshot(
        "fault",
        &[
            ("unknown fault", with("\"pause\"", "\"paus\"")),
            ("unknown target", target("holders")),
            ("target of another fault", with("\"pause\"", "\"crash\"")),
            ("node that is not there", target("node:n4")),
            (
                "client host that is not there",
                target("client:c6").replace("\"pause\"", "\"pause\" # c6"),
            ),
            (
                "no waiters",
                target("waiter").replace("clients  = 5", "clients = 1"),
            ),
            (
                "no followers",
                target("follower").replace("nodes    = 3", "nodes = 1"),
            ),
            ("no trigger", when("{}")),
            ("two triggers", when("{ every = \"5s\", at = \"3s\" }")),
            (
                "key of another trigger",
                when("{ every = \"5s\", probability = 0.5 }"),
            ),
            ("unknown event", when("{ on = \"aquired\" }")),
            (
                "probability",
                when("{ on = \"acquired\", probability = 1.5 }"),
            ),
            ("never happens", when("{ every = \"60s\" }")),
            ("trigger is a text", when("\"5s\"")),
            (
                "leader cannot change",
                when("{ on = \"leader-changed\" }").replace("nodes    = 3", "nodes = 1"),
            ),
            ("no duration", with("lasts  = \"4s\"", "")),
            ("lasts no time", with("lasts  = \"4s\"", "lasts = \"0s\"")),
            (
                "tail below median",
                with("\"4s\"", "{ gc = { median = \"2s\", p99 = \"1s\" } }"),
            ),
            (
                "unknown distribution",
                with("\"4s\"", "{ normal = \"2s\" }"),
            ),
        ],
    );
}

#[test]
fn in_the_nemesis() {
    let drawn = with("{ every = \"5s\" }", "{ weight = 3 }");
    let nemesis =
        |keys: &str| drawn.replace("[[fault]]", &format!("[nemesis]\n{keys}\n\n[[fault]]"));
    snapshot(
        "nemesis",
        &[
            ("nothing draws", drawn.clone()),
            (
                "weight below zero",
                nemesis("every = \"2s\"").replace("weight = 3", "weight = -1"),
            ),
            (
                "nothing to draw",
                nemesis("every = \"2s\"").replace("weight = 3", "weight = 0"),
            ),
            (
                "nothing drawn",
                nemesis("every = \"2s\"").replace("weight = 3", "at = \"3s\""),
            ),
            (
                "weight beside a time",
                nemesis("every = \"2s\"").replace("weight = 3", "weight = 3, at = \"3s\""),
            ),
            ("how often is missing", nemesis("quiet = \"2s\"")),
            ("without a pause", nemesis("every = \"0s..2s\"")),
            (
                "none at once",
                nemesis("every = \"2s\"\nat_most_at_once = 0"),
            ),
            (
                "half a heal phase",
                nemesis("every = \"2s\"\nheal_every = \"20s\""),
            ),
            (
                "nothing but healing",
                nemesis("every = \"2s\"\nheal_every = \"5s\"\nheal_lasts = \"5s\""),
            ),
            ("never", nemesis("every = \"60s\"")),
            (
                "healed from the start",
                nemesis("every = \"2s\"\nfinal_heal = \"60s\""),
            ),
            ("unknown key", nemesis("every = \"2s\"\nat_once = 2")),
            (
                "several",
                nemesis("every = \"2s\"").replace("[nemesis]", "[[nemesis]]"),
            ),
        ],
    );
}

#[test]
fn in_a_fault_on_a_bridge() {
    let weather = "\"weather\"\nloss = 0.25\ndelay = \"50ms\"\nrate = \"125kB/s\"";
    let text = with("\"pause\"", weather).replace("nodes    = 3", "network = \"bridge\"");
    snapshot("bridge", &[("more than a bridge can do", text)]);
}

#[test]
fn in_the_parameters_of_a_fault() {
    let weather = |params: &str| with("\"pause\"", &format!("\"weather\"\n{params}"));
    snapshot(
        "params",
        &[
            (
                "of another fault",
                with("\"pause\"", "\"pause\"\nloss = 0.1"),
            ),
            ("unknown", weather("los = 0.1")),
            ("no share", weather("loss = 1.5")),
            ("share as a text", weather("loss = \"10%\"")),
            ("no unit", weather("loss = 0.1\ndelay = 50")),
            ("wrong unit", weather("loss = 0.1\ndelay = \"50 msec\"")),
            ("no rate", weather("rate = \"1GB/s\"")),
            ("rate of nothing", weather("rate = \"0B/s\"")),
            ("unknown word", weather("shape = \"rings\"")),
            ("flag as a text", weather("both_ways = \"yes\"")),
            ("empty text", weather("port = \" \"")),
            ("contradiction", weather("delay = \"50ms\"")),
        ],
    );
}

#[test]
fn in_an_arm() {
    let expect = |table: &str| {
        with(
            "{ lost_writes = \"> 0\", overlapping_terms = \"> 0\" }",
            table,
        )
    };
    let set = |table: &str| with("{ \"workload.discipline\" = \"token\" }", table);
    snapshot(
        "arm",
        &[
            ("no name", with("name   = \"unfenced\"", "")),
            ("name twice", with("\"unfenced\"", "\"fenced\"")),
            ("unknown metric", expect("{ lost_write = \"> 0\" }")),
            ("contradiction", expect("{ lost_writes = \"> 5, < 3\" }")),
            ("below zero", expect("{ lost_writes = \"< 0\" }")),
            ("single equals sign", expect("{ lost_writes = \"= 0\" }")),
            ("number as it is", expect("{ lost_writes = 0 }")),
            ("not a table", expect("\"lost_writes > 0\"")),
            (
                "tokens refuse nothing",
                expect("{ stale_writes_rejected = \"> 0\" }"),
            ),
            (
                "nothing is written",
                set("{ \"workload.kind\" = \"mutex\" }").replace("resource = \"memory\"", ""),
            ),
            (
                "no faults",
                with(
                    "{ lost_writes = \"== 0\", overlapping_terms = \"== 0\" }",
                    "{ faults_proven = \"> 0\" }",
                ),
            ),
            (
                "holds_in",
                with("\"unfenced\"", "\"unfenced\"\nholds_in = \"11/10\""),
            ),
            (
                "a point of no sweep",
                with("\"unfenced\"", "\"unfenced\"\npoint = \"0.5x\""),
            ),
            (
                "a sweep without its point",
                with("\"unfenced\"", "\"unfenced\"\nsweep = \"clock rate\""),
            ),
            (
                "a point twice",
                with("\"unfenced\"", "\"unfenced\"\nsweep = \"s\"\npoint = \"1\"").replace(
                    "name   = \"fenced\"",
                    "name = \"fenced\"\nsweep = \"s\"\npoint = \"1\"",
                ),
            ),
            (
                "unknown key set",
                set("{ \"workload.discpline\" = \"token\" }"),
            ),
            ("top-level key set", set("{ trials = 3 }")),
            (
                "key below a value set",
                set("{ \"workload.ttl.unit\" = \"s\" }"),
            ),
            (
                "fault that is not there",
                set("{ \"fault.2.lasts\" = \"1s\" }"),
            ),
            ("faults not a bool", set("{ faults = \"none\" }")),
            ("bad value set", set("{ \"workload.ttl\" = \"5\" }")),
            (
                "impossible only here",
                set("{ \"cluster.nodes\" = 1, \"fault.1.target\" = \"follower\" }"),
            ),
        ],
    );
}

#[test]
fn all_are_reported_at_once() {
    let text = EXAMPLE
        .replace("\"3.5.16\"", "\"9.9\"")
        .replace("clients  = 5", "clients = \"five\"\nfence = true")
        .replace("\"0s..2s\"", "\"2 s\"")
        .replace("lasts  = \"4s\"", "lasts = 4")
        .replace(
            "lost_writes = \"== 0\", stale",
            "lost_wrties = \"== 0\", stale",
        );
    snapshot("several", &[("several", text)]);
}

#[test]
fn in_overrides() {
    let cases: &[&[(&str, &str)]] = &[
        &[("workload.tll", "5s")],
        &[("workload.ttl", "5")],
        &[("workload.ttl", "")],
        &[("cluster.version", "3.5")],
        &[("cluster.nodes", "many")],
        &[("faults", "0")],
        &[("fault.x.lasts", "1s")],
        &[("seed", "3")],
        &[("", "")],
        &[("workload.duration", "3s"), ("cluster.nodes", "1")],
    ];
    let texts: Vec<String> = cases
        .iter()
        .map(|pairs| {
            let errors = example()
                .resolve(&flags(pairs), 1, None)
                .expect_err(&format!("{pairs:?}"));
            format!("### {pairs:?}\n{}\n", render(&errors))
        })
        .collect();
    insta::assert_snapshot!("overrides", texts.join("\n"));
    let errors = example().resolve(&[], 1, Some(0)).expect_err("no trials");
    assert!(
        errors[0].to_string().contains("--trials 0"),
        "{}",
        errors[0]
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let errors = Scenario::load(Path::new("no/such.toml"), &known()).expect_err("no file");
    assert!(
        errors[0]
            .to_string()
            .starts_with("no/such.toml: expected a readable TOML file"),
        "{}",
        errors[0]
    );
}
