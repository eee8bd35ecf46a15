//! `leasehold demo --cluster`: it sells through its one address, also when a replica is gone, and leaves nobody behind.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_api::{BookingView, ConfirmHold, CreateEvent, CreateHold, HoldView, ItemSpec, SeatSpec};
use leasehold_client::{Client, Request};
use leasehold_testkit::{Browser, Screen};
use tempfile::TempDir;

/// A demo, and what it printed until it was ready.
struct Demo {
    process: Child,
    printed: Vec<String>,
    /// It must be able to say more.
    _stdout: BufReader<ChildStdout>,
    /// For its temporary folder, which it cannot remove when it is killed.
    _folder: TempDir,
    /// Every process that it has started, and theirs.
    family: BTreeSet<Process>,
}

/// A process id may be given again; together with the time of its start it is not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    pid: u32,
    started: String,
}

impl Demo {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["demo", "--cluster", "--listen", "127.0.0.1:0", "--crowd", "5"]);
        // What is set for other servers is not for this one's.
        command.env("LEASEHOLD_DATA", "elsewhere.db").env("LEASEHOLD_GATE", "redis://127.0.0.1:1");
        let folder = tempfile::tempdir().unwrap();
        // PostgreSQL may run as another user, who must be able to pass.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
        let mut process = command.env("TMPDIR", folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let lines = stdout.by_ref().lines().map(Result::unwrap);
        let printed: Vec<String> = lines.take_while(|line| !line.starts_with("Ctrl-C")).collect();
        let mut family = BTreeSet::new();
        collect(process.id(), &mut family);
        let demo = Self { process, printed, _stdout: stdout, _folder: folder, family };
        // Three replicas, PostgreSQL and its helpers, six servers of Redis.
        assert!(demo.family.len() > 10, "{:?}\n{:#?}", demo.family, demo.printed);
        demo
    }

    /// The addresses and process ids of what it calls so.
    fn servers(&self, name: &str) -> Vec<(String, u32)> {
        let lines = self.printed.iter().filter_map(|line| line.trim().strip_prefix(name));
        let parts = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
        let places = parts.filter_map(|parts| match parts[..] {
            [address, "pid", pid] => Some((address.to_owned(), pid.parse().unwrap())),
            _ => None,
        });
        places.collect()
    }

    fn url(&self) -> String {
        let line = self.printed.iter().find_map(|line| line.strip_prefix("Open in a browser:"));
        line.unwrap_or_else(|| panic!("no address: {:#?}", self.printed)).trim().to_owned()
    }

    fn assert_all_gone(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let left: Vec<&Process> = self.family.iter().filter(|process| process.is_alive()).collect();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "left behind: {left:?}\n{:#?}", self.printed);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Process {
    fn with_id(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // What follows the name, which may hold anything: the state, and as the 20th the time of the start.
        let rest: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
        (rest[0] != "Z").then(|| Self { pid, started: rest[19].to_owned() })
    }

    fn is_alive(&self) -> bool {
        Self::with_id(self.pid).as_ref() == Some(self)
    }
}

fn collect(pid: u32, family: &mut BTreeSet<Process>) {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    for child in lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()) {
        let pid = child.parse().unwrap();
        family.extend(Process::with_id(pid));
        collect(pid, family);
    }
}

fn signal(name: &str, pid: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(sent.success(), "kill -{name} {pid}");
}

/// Holds this seat and pays for it, on a connection of its own.
async fn buy(url: &str, seat: &str) -> Result<BookingView, String> {
    let mut client = Client::new(url);
    let body = CreateHold { items: vec![ItemSpec::seat(seat)], ..CreateHold::default() };
    let request = Request::post("/v1/events/gala/holds", &body);
    let answer = client.send(request).await.map_err(|error| error.to_string())?;
    let hold: HoldView = answer.json().map_err(|_| format!("{} {:?}", answer.status, answer.code()))?;
    let request = Request::post(format!("/v1/holds/{}/confirm", hold.hold_id), &ConfirmHold::default());
    let answer =
        client.send(request.secret(hold.secret.unwrap())).await.map_err(|error| error.to_string())?;
    answer.json().map_err(|_| format!("{} {:?}", answer.status, answer.code()))
}

#[tokio::test(flavor = "multi_thread")]
async fn it_sells_without_a_replica_and_leaves_no_process_behind() {
    let mut demo = Demo::start();
    let url = demo.url();
    let replicas = demo.servers("replica");
    assert_eq!(replicas.len(), 3, "{:#?}", demo.printed);
    assert_eq!(demo.servers("Redis master").len(), 3, "{:#?}", demo.printed);
    assert_eq!(demo.servers("Redis copy").len(), 3, "{:#?}", demo.printed);

    // Every replica has what any of them sold. The crowd of the demo is at another event.
    let seats = (1..=6).map(|number| SeatSpec::Id(format!("A-{number}"))).collect();
    let event = CreateEvent { id: "gala".to_owned(), seats, ..CreateEvent::default() };
    assert_eq!(Client::new(&url).send(Request::post("/v1/events", &event)).await.unwrap().status, 201);
    buy(&url, "A-1").await.unwrap();
    for (replica, _) in &replicas {
        let refused = buy(replica, "A-1").await.unwrap_err();
        assert!(refused.contains("409") && refused.contains("seat-taken"), "{refused}");
    }
    signal("KILL", replicas[0].1);
    // A process that is being killed still takes connections for a moment, and never answers them.
    let address = replicas[0].0.trim_start_matches("http://");
    let deadline = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < deadline, "the replica is gone");
        std::thread::sleep(Duration::from_millis(5));
    }
    // As many connections as there were replicas, and then some: each one's turn comes.
    for seat in ["A-2", "A-3", "A-4", "A-5"] {
        buy(&url, seat).await.unwrap();
    }
    assert!(buy(&replicas[0].0, "A-6").await.is_err(), "the replica is gone");

    signal("TERM", demo.process.id());
    let ended = tokio::task::block_in_place(|| demo.process.wait()).unwrap();
    assert!(ended.success(), "{ended}");
    demo.assert_all_gone();
}

#[tokio::test]
async fn the_console_is_one_replicas_own_and_draws_the_rush_it_started() {
    let demo = Demo::start();
    let browser = Browser::start().await;
    let mut page = browser.page(Screen::DESKTOP).await;
    page.open(&demo.url()).await;
    page.click("a[href='/console']").await;
    page.until_there("#view[data-showing]").await;
    let shown_by = page.run("return location.origin;").await;
    let replicas = demo.servers("replica");
    assert!(replicas.iter().any(|(address, _)| shown_by == *address), "{shown_by}: {replicas:?}");
    page.click(".tabs a[href='#rush']").await;
    page.click("#start-rush").await;
    page.until_there("#verdict").await;
    // Every second since was read from the same server, so the lines have no gap.
    page.click(".tabs a[href='#sales']").await;
    let line = "document.querySelector('#server-sales .chart path.line').getAttribute('d')";
    page.until(&format!("{line}.includes('L')")).await;
    assert_eq!(page.run(&format!("return {line}.split('M').length;")).await, 2);
    assert_eq!(page.run("return document.getElementById('mixed').hidden;").await, true);
    page.assert_no_complaints().await;
}

#[test]
fn killed_without_a_word_it_leaves_no_process_behind_either() {
    let mut demo = Demo::start();
    signal("KILL", demo.process.id());
    demo.process.wait().unwrap();
    demo.assert_all_gone();
}

#[test]
fn without_the_packages_it_says_which_to_install() {
    let nothing = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["demo", "--cluster", "--listen", "127.0.0.1:0"]).env("PATH", nothing.path());
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("apt-get install redis-server"), "{said}");
}
