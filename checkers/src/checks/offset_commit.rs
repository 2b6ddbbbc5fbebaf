//! `offset-commit-lost` and `offset-commit-ahead`: where a group would go on, once all is healed, is
//! where a commit left it that nothing acknowledged came after.
//!
//! Commits may be under way side by side, and one without an answer may take effect whenever it likes: such
//! ones are never held against anybody.

use std::collections::BTreeMap;

use history::{At, CommitPhase, CommitValue, CommittedValue, History};

use crate::findings::Findings;
use crate::order::Orders;
use crate::verdict::{Example, Validity};

pub(crate) const LOST: &str = "offset-commit-lost";
pub(crate) const AHEAD: &str = "offset-commit-ahead";

/// A group and a key, and which of its commits.
type Place<'a> = ((&'a str, &'a str), usize);

/// A commit of one key.
struct Commit {
    offset: i64,
    asked: u64,
    /// When it was acknowledged, and the index of that event.
    acknowledged: Option<(u64, u64)>,
}

pub(super) fn check(_: &Orders<'_>, history: &History, findings: &mut Findings) {
    if history.committed.is_empty() {
        return;
    }
    let commits = commits(history);
    for answer in &history.committed {
        for (key, found) in &answer.value.offsets {
            let at = (answer.value.group.as_str(), key.as_str());
            let known = commits.get(&at).map_or(&[][..], Vec::as_slice);
            judge(answer, key, *found, known, findings);
        }
    }
}

/// The commits of each group and key, in the order in which they were sent.
fn commits(history: &History) -> BTreeMap<(&str, &str), Vec<Commit>> {
    let mut by_key: BTreeMap<(&str, &str), Vec<Commit>> = BTreeMap::new();
    let mut asked: BTreeMap<u64, Vec<Place<'_>>> = BTreeMap::new();
    for At { index, time_ns, value: CommitValue { id, group, phase, offsets } } in &history.commits
    {
        match phase {
            CommitPhase::Asked => {
                for (key, offset) in offsets {
                    let at = (group.as_str(), key.as_str());
                    let of_key = by_key.entry(at).or_default();
                    asked.entry(*id).or_default().push((at, of_key.len()));
                    of_key.push(Commit { offset: *offset, asked: *index, acknowledged: None });
                }
            }
            CommitPhase::Acknowledged => {
                for (at, place) in asked.get(id).into_iter().flatten() {
                    if offsets.contains_key(at.1)
                        && let Some(commit) = by_key.get_mut(at).and_then(|all| all.get_mut(*place))
                    {
                        commit.acknowledged = Some((*time_ns, *index));
                    }
                }
            }
            CommitPhase::Unknown => {}
        }
    }
    by_key
}

fn judge(
    answer: &At<CommittedValue>,
    key: &str,
    found: Option<i64>,
    known: &[Commit],
    findings: &mut Findings,
) {
    // What was acknowledged before the question, and the one of those that was sent last.
    let settled = known
        .iter()
        .filter_map(|commit| Some((commit, commit.acknowledged?)))
        .filter(|(_, (time_ns, _))| *time_ns <= answer.value.asked_ns);
    let Some((last, (_, last_index))) = settled.max_by_key(|(commit, _)| commit.asked) else {
        if let Some(found) = found.filter(|found| known.iter().all(|one| one.offset != *found)) {
            ahead(answer, key, found, findings);
        }
        return;
    };
    // One that was acknowledged before the last one was sent has been replaced by it.
    let may_hold =
        |commit: &&Commit| commit.acknowledged.is_none_or(|(_, index)| index >= last.asked);
    let Some(found) = found else {
        return lost(answer, key, None, (last, last_index), findings);
    };
    if known.iter().filter(may_hold).any(|commit| commit.offset == found) {
        return;
    }
    if known.iter().all(|commit| commit.offset < found) {
        ahead(answer, key, found, findings);
    } else {
        lost(answer, key, Some(found), (last, last_index), findings);
    }
}

fn lost(
    answer: &At<CommittedValue>,
    key: &str,
    found: Option<i64>,
    (last, acknowledged): (&Commit, u64),
    findings: &mut Findings,
) {
    findings.add(LOST, Validity::False, || {
        let found = found.map_or("has committed nothing".to_owned(), |at| format!("stands at {at}"));
        let text = format!(
            "{key}: the commit of {} for group {} was acknowledged, and nothing that was sent later explains \
             why the group {found}.",
            last.offset, answer.value.group
        );
        let mut example = Example::new(key, text).offsets([last.offset]);
        example.ops.extend([last.asked, acknowledged, answer.index]);
        example
    });
}

fn ahead(answer: &At<CommittedValue>, key: &str, found: i64, findings: &mut Findings) {
    findings.add(AHEAD, Validity::False, || {
        let text = format!(
            "{key}: group {} would go on at {found}, which nobody ever committed.",
            answer.value.group
        );
        let mut example = Example::new(key, text).offsets([found]);
        example.ops.push(answer.index);
        example
    });
}
