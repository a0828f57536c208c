//! A single ZooKeeper server of each version that this machine has.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use workloads::zookeeper::status;

use crate::real::search::{Search, on_each};
use crate::real::server::{self, Kind};

pub(crate) type Server = server::Server<ZooKeeper>;

/// Sessions last at least two of these.
pub(crate) const TICK_MS: u64 = 500;

/// And at most this long: longer than a restart takes on a busy machine, where the usual twenty ticks are not.
pub(crate) const LONGEST_SESSION_MS: u64 = 60_000;

/// What is looked for is a folder of jars.
const SEARCH: Search = Search {
    variable: "FENCEPOST_TEST_ZOOKEEPER",
    folder: "zookeeper",
    is_one: |path| path.join("zookeeper.jar").exists(),
    lack: "no ZooKeeper. Run `fencepost backends fetch zookeeper@3.8.0`, or name folders with its jars in \
           FENCEPOST_TEST_ZOOKEEPER=FOLDER[:FOLDER…]",
};

/// Runs a test on every version there is, all at once, and says so when there is none.
pub(crate) fn on_each_version<F>(test: fn(Server) -> F)
where
    F: Future<Output = ()>,
{
    let found = SEARCH.found();
    if !found.is_empty() && !has_java() {
        println!("skipped: no `java` on PATH");
        return;
    }
    on_each(found, |jars: PathBuf| async move {
        let mut server = Server::new(&jars, ZooKeeper);
        configure(&server);
        server.restart().await;
        let status = status(server.endpoint, ZooKeeper::READY_WITHIN).await;
        server.version = status.expect("a status").version;
        println!("zookeeper {} at {}", server.version, server.endpoint);
        test(server).await;
    });
}

fn has_java() -> bool {
    Command::new("java")
        .arg("-version")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn configure(server: &Server) {
    let text = format!(
        "tickTime={TICK_MS}\ndataDir={}\nclientPort={}\nclientPortAddress={}\nmaxClientCnxns=0\n\
         maxSessionTimeout={LONGEST_SESSION_MS}\n",
        server.data().join("data").display(),
        server.endpoint.port(),
        server.endpoint.ip()
    );
    std::fs::write(server.data().join("zoo.cfg"), text).expect("a configuration");
}

/// A server that stands alone.
pub(crate) struct ZooKeeper;

impl ZooKeeper {
    const LIMIT: Duration = Duration::from_millis(300);
}

impl Kind for ZooKeeper {
    const READY_WITHIN: Duration = Duration::from_secs(60);

    fn command(server: &Server) -> Command {
        let mut command = Command::new("java");
        command
            .args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args([
                "-Dzookeeper.admin.enableServer=false",
                "-Dzookeeper.4lw.commands.whitelist=*",
                "-Dzookeeper.forceSync=no",
                "-Dzookeeper.jmx.log4j.disable=true",
                "-Djava.net.preferIPv4Stack=true",
            ])
            .arg("-cp")
            .arg(class_path(server.path()))
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(server.data().join("zoo.cfg"));
        command
    }

    async fn is_ready(server: &Server) -> bool {
        status(server.endpoint, Self::LIMIT).await.is_ok()
    }
}

/// What a server needs of the folder, in which other jars may lie too.
fn class_path(jars: &Path) -> String {
    let names = [
        "zookeeper.jar",
        "zookeeper-jute.jar",
        "slf4j-api.jar",
        "slf4j-simple.jar",
        "metrics-core.jar",
        "snappy-java.jar",
    ];
    let paths = names.map(|name| jars.join(name).display().to_string());
    paths.join(":")
}
