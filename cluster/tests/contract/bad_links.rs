//! Links that are bad rather than cut.

use std::collections::BTreeSet;

use cluster::NodeName;
use cluster::network::{Cut, Impairment};

use crate::links::Lan;

/// Each way of being bad is seen as asked for, on that link and no longer than asked.
pub(crate) async fn bad_links_are_as_bad_as_asked(lan: &Lan) {
    let link = Cut::nodes(NodeName::new(1), NodeName::new(2));
    let all = [
        "delay=30ms jitter=20ms",
        "loss=20%",
        "duplicate=20%",
        "reorder=20%",
        "corrupt=20%",
        "rate=300kbit",
        "delay=5ms",
    ];
    for (id, asked) in (1..).zip(all) {
        let asked: Impairment = asked.parse().expect("it is well written");
        let looks = lan.network.impair(id, &BTreeSet::from([link]), asked, 5).await;
        let looks = looks.expect("the kernel has packet queues");
        let measured = looks[0].1.expect("both ends have a network");
        // What was asked for before is gone, or this would tell.
        assert_eq!(measured.differs(&asked), None, "{asked}: {measured:?}");
        let done = lan.network.repair(id).await.expect("the rule can be taken away");
        assert!(done[0].1.seen >= u64::from(measured.sent), "{asked}: {done:?}");
    }
    let rules = lan.backend.read_rules(NodeName::new(1)).await.expect("rules can be read");
    assert!(!rules.expect("the node has a network").contains("NFQUEUE"));
}
