//! What is acknowledged is kept, and what is kept is what the log says: with a log that commits late,
//! clients that go away, and failovers.

use proptest::prelude::*;
use tokio::task::JoinHandle;

use super::*;

const TIMED_OUT: i16 = ResponseError::CoordinatorNotAvailable.code();

/// A write that has begun and waits for the log.
async fn begun(write: impl Future<Output = i16> + Send + 'static) -> JoinHandle<i16> {
    let write = tokio::spawn(write);
    tokio::task::yield_now().await;
    write
}

fn begin_commit(coordinator: &Arc<Coordinator>, offset: i64) -> impl Future<Output = i16> + use<> {
    let coordinator = Arc::clone(coordinator);
    async move { commit(&coordinator, -1, "", offset).await }
}

fn begin_delete(coordinator: &Arc<Coordinator>) -> impl Future<Output = i16> + use<> {
    let coordinator = Arc::clone(coordinator);
    async move { delete(&coordinator).await }
}

async fn slow() -> (Arc<Memory>, Arc<Coordinator>) {
    let memory: Arc<Memory> = Arc::default();
    let coordinator = coordinator(&memory).await;
    memory.is_slow.store(true, Ordering::Relaxed);
    (memory, coordinator)
}

#[tokio::test(start_paused = true)]
async fn commits_are_made_in_the_order_of_the_log_whoever_hears_of_it_first() {
    let (memory, coordinator) = slow().await;
    let first = begun(begin_commit(&coordinator, 1)).await;
    let second = begun(begin_commit(&coordinator, 2)).await;
    assert_eq!(fetch(&coordinator).await, None, "nothing is committed yet");
    memory.commit_all();
    assert_eq!(second.await.unwrap(), 0);
    assert_eq!(first.await.unwrap(), 0);
    assert_eq!(fetch(&coordinator).await, Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_client_is_gone_is_made_all_the_same() {
    let (memory, coordinator) = slow().await;
    let gone = begun(begin_commit(&coordinator, 1)).await;
    gone.abort();
    memory.commit_all();
    assert_eq!(fetch(&coordinator).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_took_too_long_is_made_when_it_is_committed() {
    let (memory, coordinator) = slow().await;
    assert_eq!(commit(&coordinator, -1, "", 1).await, TIMED_OUT);
    assert_eq!(fetch(&coordinator).await, None);
    memory.commit_all();
    assert_eq!(fetch(&coordinator).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_covers_commits_that_are_on_their_way() {
    let (memory, coordinator) = slow().await;
    memory.is_slow.store(false, Ordering::Relaxed);
    assert_eq!(commit(&coordinator, -1, "", 1).await, 0);
    memory.is_slow.store(true, Ordering::Relaxed);
    let late = begun(begin_commit(&coordinator, 2)).await;
    let deleted = begun(begin_delete(&coordinator)).await;
    memory.commit_all();
    assert_eq!((late.await.unwrap(), deleted.await.unwrap()), (0, 0));
    assert_eq!(fetch(&coordinator).await, None);
    take_over(&coordinator, memory.elect(memory.end())).await;
    assert_eq!(fetch(&coordinator).await, None, "nor does it come back");
}

#[tokio::test(start_paused = true)]
async fn who_joins_while_a_group_is_deleted_is_in_a_group() {
    let (memory, coordinator) = slow().await;
    memory.is_slow.store(false, Ordering::Relaxed);
    assert_eq!(commit(&coordinator, -1, "", 1).await, 0);
    memory.is_slow.store(true, Ordering::Relaxed);
    let deleted = begun(begin_delete(&coordinator)).await;
    let joined = join(&coordinator, "").await;
    memory.is_slow.store(false, Ordering::Relaxed);
    memory.commit_all();
    assert_eq!(deleted.await.unwrap(), 0);
    let member = joined.member_id.to_string();
    assert_eq!(sync(&coordinator, &joined, &[(&member, b"all")]).await.unwrap(), &b"all"[..]);
    assert_eq!(beat(&coordinator, &joined).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_coordinator_says_nothing_before_all_it_read_is_committed() {
    let (memory, coordinator) = slow().await;
    let _late = begun(begin_commit(&coordinator, 9)).await;
    coordinator.elected(0, memory.elect(memory.end()));
    tokio::time::sleep(LIMIT * 3).await;
    assert!(coordinator.lock().values().all(|shard| !shard.loaded));
    let asked = commit(&coordinator, -1, "", 1).await;
    assert_eq!(asked, ResponseError::CoordinatorLoadInProgress.code());
    memory.commit_all();
    while !coordinator.lock().values().all(|shard| shard.loaded) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(fetch(&coordinator).await, Some(9));
}

#[tokio::test(start_paused = true)]
async fn a_group_that_only_commits_is_a_group_after_a_failover() {
    let memory: Arc<Memory> = Arc::default();
    let coordinator = coordinator(&memory).await;
    assert_eq!(commit(&coordinator, -1, "", 1).await, 0);
    take_over(&coordinator, memory.elect(memory.end())).await;
    assert_eq!(delete(&coordinator).await, 0);
    assert_eq!(fetch(&coordinator).await, None);
}

#[tokio::test(start_paused = true)]
async fn an_offset_that_nobody_uses_any_more_expires_for_good() {
    let memory: Arc<Memory> = Arc::default();
    let coordinator = coordinator(&memory).await;
    let joined = join(&coordinator, "").await;
    let member = joined.member_id.to_string();
    sync(&coordinator, &joined, &[(&member, b"all")]).await.unwrap();
    assert_eq!(commit(&coordinator, joined.generation_id, &member, 5).await, 0);
    // The session ends, and so does the time for which offsets are kept.
    let day = Duration::from_secs(24 * 3600);
    tokio::time::sleep(day * 6).await;
    assert_eq!(fetch(&coordinator).await, Some(5));
    tokio::time::sleep(day * 2).await;
    assert_eq!(fetch(&coordinator).await, None);
    take_over(&coordinator, memory.elect(memory.end())).await;
    assert_eq!(fetch(&coordinator).await, None);
}

/// What happens to a group whose offsets are asked for all the while.
#[derive(Clone, Debug)]
enum Step {
    /// Of partition 0 or 1.
    Commit(i32),
    Delete,
    /// The client of the write before goes away.
    Abort,
    /// The log commits everything, or nothing for now.
    CommitAll,
    /// Too few replicas, or enough again.
    Refuse(bool),
    /// Time goes by, so that who waits gives up.
    TimeOut,
    /// Another leader; so much of what is not committed survives.
    Failover(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..2).prop_map(Step::Commit),
        3 => Just(Step::Delete),
        1 => Just(Step::Abort),
        3 => Just(Step::CommitAll),
        1 => any::<bool>().prop_map(Step::Refuse),
        1 => Just(Step::TimeOut),
        2 => any::<prop::sample::Index>().prop_map(Step::Failover),
    ];
    prop::collection::vec(step, 1..40)
}

/// A write: of which partition (both, if it deletes), what it leaves if it is made, and what became
/// of it.
struct Write {
    of: Option<i32>,
    leaves: Option<i64>,
    outcome: JoinHandle<i16>,
}

async fn run(steps: Vec<Step>) {
    let (memory, coordinator) = slow().await;
    let mut writes: Vec<Write> = Vec::new();
    for step in steps {
        match step {
            Step::Commit(partition) => {
                let offset = i64::try_from(writes.len()).unwrap();
                let to = Arc::clone(&coordinator);
                let commit = async move { commit_at(&to, partition, -1, "", offset).await };
                let outcome = begun(commit).await;
                writes.push(Write { of: Some(partition), leaves: Some(offset), outcome });
            }
            Step::Delete => {
                let outcome = begun(begin_delete(&coordinator)).await;
                writes.push(Write { of: None, leaves: None, outcome });
            }
            Step::Abort => writes.last().into_iter().for_each(|write| write.outcome.abort()),
            Step::CommitAll => memory.commit_all(),
            Step::Refuse(refuses) => memory.refuses.store(refuses, Ordering::Relaxed),
            Step::TimeOut => tokio::time::sleep(LIMIT + Duration::from_millis(1)).await,
            Step::Failover(survives) => {
                let committed = memory.progress.borrow().1.0;
                let end = committed
                    + i64::try_from(
                        survives.index(usize::try_from(memory.end().0 - committed).unwrap() + 1),
                    )
                    .unwrap();
                coordinator.elected(0, memory.elect(Offset(end)));
                memory.commit_all();
            }
        }
    }
    memory.refuses.store(false, Ordering::Relaxed);
    memory.commit_all();
    while !coordinator.lock().values().all(|shard| shard.loaded) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let now = fetch_both(&coordinator).await;
    take_over(&coordinator, memory.elect(memory.end())).await;
    assert_eq!(fetch_both(&coordinator).await, now, "as the log says");
    // The last write that was acknowledged holds, or one that began after it.
    let mut may_be = [vec![None], vec![None]];
    for Write { of, leaves, outcome } in writes {
        let is_acknowledged = matches!(outcome.await, Ok(0));
        for (partition, may_be) in (0..).zip(&mut may_be) {
            if of.is_none_or(|of| of == partition) {
                if is_acknowledged {
                    may_be.clear();
                }
                may_be.push(leaves);
            }
        }
    }
    for (now, may_be) in now.iter().zip(may_be) {
        assert!(may_be.contains(now), "{now:?} is none of {may_be:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_was_acknowledged_holds(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(steps));
    }
}
