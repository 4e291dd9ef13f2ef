//! Files of deleted sessions on several hosts.

use std::path::{Path, PathBuf};

use greenroom_fleet::admin::{Admin, HostError};
use greenroom_fleet::backend::Requests;
use greenroom_fleet::testkit::{Fault, FaultedBackend};
use greenroom_fleet::{FleetBuilder, FleetError, FleetEvent, Name, NameState, Placement};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::Node;
use crate::scenes::{World, asks, in_time, is_erased, named, outcome, secs, send};

/// Hosts with a folder each, on one backend.
struct Hosts {
    world: World,
    folders: TempDir,
    placement: Placement,
}

impl Hosts {
    fn new(placement: Placement) -> Self {
        Self { world: World::new(), folders: tempfile::tempdir().unwrap(), placement }
    }

    async fn node(&self, host: &str) -> Node {
        let (folder, placement) = (self.folder(host), self.placement);
        let change = |builder: FleetBuilder| builder.host(host).folder(folder).placement(placement);
        Node::with(&self.world, FaultedBackend::new(self.world.backend.clone()), change).await
    }

    fn folder(&self, host: &str) -> PathBuf {
        self.folders.path().join(host)
    }

    /// The number of folders of sessions on a host.
    fn files(&self, host: &str) -> usize {
        entries(&self.folder(host))
    }

    fn admin(&self) -> Admin {
        Admin::new(self.world.backend.clone())
    }
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

fn a() -> Name {
    "default/a".parse().unwrap()
}

/// A session that was awake on two hosts, and sleeps.
async fn on_two_hosts(hosts: &Hosts) -> [Node; 2] {
    let one = hosts.node("one").await;
    asks(&one.fleet, "a", "hello").await;
    // The next activation is on the other host: this one does not look for work meanwhile.
    named(&one.fleet, "a").passivate().await.unwrap();
    let two = hosts.node("two").await;
    in_time("warm", named(&two.fleet, "a").warm()).await.unwrap();
    in_time("sleep", named(&two.fleet, "a").passivate()).await.unwrap();
    assert_eq!((hosts.files("one"), hosts.files("two")), (1, 1));
    [one, two]
}

// Guards: erased
#[tokio::test(start_paused = true)]
async fn a_deletion_removes_the_files_on_every_host_that_is_alive() {
    for deaf in [false, true] {
        let hosts = Hosts::new(Placement::Anywhere);
        let [one, two] = on_two_hosts(&hosts).await;
        let two = if deaf {
            in_time("the drain", two.fleet.drain(secs(5))).await;
            let backend = FaultedBackend::new(hosts.world.backend.clone()).without_changes();
            let folder = hosts.folder("two");
            Node::with(&hosts.world, backend, |builder| builder.host("two").folder(folder)).await
        } else {
            two
        };
        let begun = Instant::now();
        let erased = in_time("the deletion", named(&one.fleet, "a").delete()).await.unwrap();
        assert_eq!(erased.left, []);
        assert_eq!((hosts.files("one"), hosts.files("two")), (0, 0), "deaf: {deaf}");
        assert!(begun.elapsed() <= secs(if deaf { 7 } else { 1 }), "{:?}", begun.elapsed());
        assert!(matches!(named(&two.fleet, "a").record().await, Err(FleetError::NotFound { .. })));
    }
}

// Guards: erased
#[tokio::test(start_paused = true)]
async fn files_on_a_host_without_a_node_are_reported_and_removed_when_it_joins_again() {
    let hosts = Hosts::new(Placement::Anywhere);
    let [one, two] = on_two_hosts(&hosts).await;
    in_time("the drain", two.fleet.drain(secs(5))).await;
    let prompt = send(&one.fleet, "a", "again").await.prompt_id();
    outcome(one.fleet.operator().turn(prompt)).await;
    let erased = in_time("the deletion", named(&one.fleet, "a").delete()).await.unwrap();
    let left: Vec<_> = erased.left.iter().map(|left| (left.host.as_str(), left.has_node)).collect();
    assert_eq!(left, [("two", false)]);
    assert_eq!((hosts.files("one"), hosts.files("two")), (0, 1));
    is_erased(&one.fleet, prompt).await;

    // Another life of the name, with files on both hosts.
    asks(&one.fleet, "a", "anew").await;
    in_time("sleep", named(&one.fleet, "a").passivate()).await.unwrap();
    let waits = send(&one.fleet, "a", "hold").await.prompt_id();
    hosts.world.clis.read(4).await;
    let again = hosts.node("two").await;
    assert_eq!((hosts.files("one"), hosts.files("two")), (1, 0), "the opening removes the old files");
    assert_eq!(hosts.world.backend.files_left(None, 10).await.unwrap(), []);
    assert!(named(&again.fleet, "a").interrupt().await.unwrap());
    assert_eq!(outcome(one.fleet.operator().turn(waits)).await.word(), "interrupted");
}

// Guards: erased
#[tokio::test(start_paused = true)]
async fn a_session_of_a_host_that_is_lost_for_ever_is_deleted() {
    let hosts = Hosts::new(Placement::OnHost);
    let (gone, other) = (hosts.node("gone").await, hosts.node("other").await);
    let prompt = send(&gone.fleet, "a", "hello").await.prompt_id();
    outcome(gone.fleet.operator().turn(prompt)).await;
    asks(&gone.fleet, "b", "hello").await;
    assert!(matches!(hosts.admin().forget_host("gone").await, Err(HostError::Alive { .. })));
    gone.kill(&hosts.world).await;
    sleep(secs(60)).await;
    let erased = in_time("the deletion", named(&other.fleet, "a").delete()).await.unwrap();
    assert_eq!(erased.left.iter().map(|left| left.host.as_str()).collect::<Vec<_>>(), ["gone"]);
    is_erased(&other.fleet, prompt).await;
    assert!(matches!(named(&other.fleet, "a").record().await, Err(FleetError::NotFound { .. })));

    let forgotten = hosts.admin().forget_host("gone").await.unwrap();
    let b: Name = "default/b".parse().unwrap();
    assert_eq!((forgotten.files, forgotten.bound), (2, vec![b.clone()]));
    assert_eq!(hosts.world.backend.files_left(None, 10).await.unwrap(), []);
    hosts.admin().move_to_host(b, "other").await.unwrap();
    assert_eq!(asks(&other.fleet, "b", "two").await, "re: two");
    let erased = in_time("the deletion", named(&other.fleet, "b").delete()).await.unwrap();
    assert_eq!((erased.left, hosts.files("other")), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_waits_for_a_lost_host_runs_on_the_one_to_which_its_session_moves() {
    let hosts = Hosts::new(Placement::OnHost);
    let (lost, other) = (hosts.node("lost").await, hosts.node("other").await);
    asks(&lost.fleet, "a", "one").await;
    let awake = hosts.admin().move_to_host(a(), "other").await;
    assert!(matches!(awake, Err(HostError::NotAtRest(_))), "{awake:?}");
    lost.kill(&hosts.world).await;
    sleep(secs(60)).await;
    let turn = send(&other.fleet, "a", "two").await;
    sleep(secs(60)).await;
    assert_eq!(hosts.world.clis.prompts_of("a"), ["one"]);
    let unknown = hosts.admin().move_to_host(a(), "nowhere").await.unwrap_err();
    assert!(unknown.to_string().contains("no node of the host 'nowhere' is alive"), "{unknown}");
    hosts.admin().move_to_host(a(), "other").await.unwrap();
    assert_eq!(outcome(turn).await.text(), Some("re: two"));
}

// Guards: erased
#[tokio::test(start_paused = true)]
async fn a_deletion_whose_caller_is_killed_anywhere_goes_on() {
    for method in ["erase", "delete_transcripts", "hosts_left", "files_removed", "deleted"] {
        let hosts = Hosts::new(Placement::Anywhere);
        let [one, two] = on_two_hosts(&hosts).await;
        one.backend.fault_next(method, Fault::Hang);
        let session = named(&one.fleet, "a");
        let deletion = tokio::spawn(async move { session.delete().await });
        in_time("the request", one.backend.wait_for_hanging(1)).await;
        one.kill(&hosts.world).await;
        deletion.abort();
        sleep(secs(60)).await;
        let gone = named(&two.fleet, "a").record().await;
        assert!(matches!(gone, Err(FleetError::NotFound { .. })), "{method}: {gone:?}");
        assert_eq!(hosts.files("two"), 0, "{method}");
        let _again = hosts.node("one").await;
        assert_eq!(hosts.files("one"), 0, "{method}");
        assert_eq!(hosts.world.backend.files_left(None, 10).await.unwrap(), [], "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_remove_its_files_is_reported_after_a_while_and_goes_on() {
    let hosts = Hosts::new(Placement::Anywhere);
    let [one, two] = on_two_hosts(&hosts).await;
    let folder = std::fs::read_dir(hosts.folder("two")).unwrap().next().unwrap().unwrap().path();
    let away = hosts.folders.path().join("away");
    std::fs::rename(&folder, &away).unwrap();
    std::os::unix::fs::symlink(&away, &folder).unwrap();
    let begun = Instant::now();
    let erased = in_time("the deletion", named(&one.fleet, "a").delete()).await.unwrap();
    assert_eq!(
        erased.left.iter().map(|left| (left.host.as_str(), left.has_node)).collect::<Vec<_>>(),
        [("two", true)]
    );
    assert!((secs(30)..secs(32)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert!(two.log.count(|event| matches!(event, FleetEvent::DeletionFailed { .. })) > 0);
    let record = named(&one.fleet, "a").record().await.unwrap();
    assert!(matches!(record.state, NameState::Deleting { .. }), "{record:?}");
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    sleep(secs(60)).await;
    assert!(named(&one.fleet, "a").record().await.is_err());
    assert_eq!(hosts.files("two"), 0);
}
