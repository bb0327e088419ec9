use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::observe::view::{
    ArchiveView, CopyCheckView, CopyView, LimitView, NotifyView, StartStepView, ThrottleByView,
    VerifyProgressView, VerifyResultView, VerifyView,
};

const DOCUMENT: &str = include_str!("../../../../../docs/metrics.md");

/// Type, labels and meaning.
type Described = (String, BTreeSet<String>, String);

const RELOAD: LastReload = LastReload { ok: true, adopted: 0 };

/// Returns a channel that has a value for everything.
fn full() -> ChannelView {
    let mut view = ChannelView { channel_name: "orders".to_owned(), ..ChannelView::default() };
    view.lag_seconds = Some(0.5);
    view.backlog_transactions = Some(7);
    view.backlog_bytes = Some(700);
    view.seconds_to_drain = Some(1.5);
    view.bottleneck.cause = "target".to_owned();
    view.start = vec![StartStepView { step: "claim".to_owned(), seconds: 0.25 }];
    view.connection.semi_sync = Some(true);
    view.next_attempt_seconds = Some(30.0);
    let step = "rows".to_owned();
    view.copy = Some(CopyView { step, rows: 5, rows_estimated: 9, ..CopyView::default() });
    view.copy_check =
        Some(CopyCheckView { outcome: "equal".to_owned(), ..CopyCheckView::default() });
    view.archive = Some(ArchiveView { lag_seconds: Some(2.5), ..ArchiveView::default() });
    view.applier.target = "t:3306".to_owned();
    view.applier.session_limit = Some(3);
    view.notify = Some(NotifyView::default());
    let finished = "2026-03-01T18:00:00Z".to_owned();
    let last = VerifyResultView { finished, ..VerifyResultView::default() };
    let progress = VerifyProgressView::default();
    let verify = VerifyView { last: Some(last), progress: Some(progress), ..VerifyView::default() };
    view.verify = Some(verify);
    let limit = LimitView { key: "query".to_owned(), value: Some(2.5), ..LimitView::default() };
    view.throttle_by = Some(ThrottleByView { limits: vec![limit], ..ThrottleByView::default() });
    view.relay.space_limit_bytes = 1 << 30;
    view.relay.free_disk_bytes = Some(1 << 40);
    view
}

/// Returns the rows of the table in the document.
fn documented() -> BTreeMap<String, Described> {
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        let [name, kind, labels, meaning] = cells[..] else { panic!("four cells: {row}") };
        let labels = labels.split(", ").filter(|label| *label != "–");
        let labels = labels.map(|label| label.trim_matches('`').to_owned()).collect();
        let described = (kind.to_owned(), labels, meaning.to_owned());
        (name.trim_end_matches('`').to_owned(), described)
    })
    .collect()
}

/// Returns the same, of a scrape.
fn served(text: &str) -> BTreeMap<String, Described> {
    let mut families: BTreeMap<String, Described> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            families.entry(name.to_owned()).or_default().2 = help.to_owned();
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' '))
        {
            families.entry(name.to_owned()).or_default().0 = kind.to_owned();
        } else if let Some((name, rest)) = line.split_once('{') {
            let labels = rest.split_once('}').expect("labels end").0;
            let names = labels.split(',').map(|pair| pair.split_once('=').expect("a pair").0);
            let names = names.filter(|label| *label != "le").map(str::to_owned).collect();
            let parts = ["_bucket", "_sum", "_count"];
            let whole = parts.iter().find_map(|part| name.strip_suffix(part));
            let whole = whole.filter(|whole| families.contains_key(*whole)).unwrap_or(name);
            families.entry(whole.to_owned()).or_default().1 = names;
        }
    }
    families
}

#[test]
fn the_document_lists_exactly_what_is_served() {
    let text = render(&[full()], RELOAD, &FleetView::default()).expect("renders");
    let (documented, served) = (documented(), served(&text));
    let rows: Vec<String> = served
        .iter()
        .filter(|(name, described)| documented.get(*name) != Some(described))
        .map(|(name, (kind, labels, meaning))| {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
            format!("| `{name}` | {kind} | {labels} | {meaning} |")
        })
        .collect();
    assert!(rows.is_empty(), "docs/metrics.md lacks or differs in:\n{}", rows.join("\n"));
    let gone: Vec<&String> = documented.keys().filter(|name| !served.contains_key(*name)).collect();
    assert!(gone.is_empty(), "docs/metrics.md has what is not served: {gone:?}");
}

#[test]
fn what_is_not_known_is_absent_and_not_zero() {
    let mut view = ChannelView { channel_name: "orders".to_owned(), ..ChannelView::default() };
    let text = render(std::slice::from_ref(&view), RELOAD, &FleetView::default()).expect("renders");
    for name in [
        "csa_lag_seconds",
        "csa_backlog_transactions",
        "csa_backlog_bytes",
        "csa_drain_seconds",
        "csa_relaystore_free_disk_bytes",
        "csa_relaystore_space_limit_bytes",
        "csa_throttle_value",
        "csa_throttle_limit",
    ] {
        assert!(!text.contains(&format!("{name}{{")), "{name}\n{text}");
    }
    view = full();
    let text = render(&[view], RELOAD, &FleetView::default()).expect("renders");
    assert!(text.contains("csa_lag_seconds{channel=\"orders\"} 0.5"), "{text}");
    assert!(text.contains("csa_backlog_transactions{channel=\"orders\"} 7"), "{text}");
}

#[test]
fn a_copy_is_checked_once_its_comparison_has_a_result() {
    for (outcome, differs, unchecked) in [
        ("comparing", None, None),
        ("equal", Some(0), Some(0)),
        ("different", Some(1), Some(0)),
        ("unstable", None, Some(1)),
        ("unfinished", None, Some(1)),
    ] {
        let check = CopyCheckView { outcome: outcome.to_owned(), ..CopyCheckView::default() };
        let view = ChannelView { copy_check: Some(check), ..full() };
        let text = render(&[view], RELOAD, &FleetView::default()).expect("renders");
        for (name, value) in [("differs", differs), ("unchecked", unchecked)] {
            let line = |value: u8| format!("csa_copy_{name}{{channel=\"orders\"}} {value}");
            for possible in [0, 1] {
                let is_there = text.lines().any(|found| found == line(possible));
                assert_eq!(is_there, value == Some(possible), "{outcome}: {name} {possible}");
            }
        }
    }
}

#[test]
fn a_copy_that_differs_does_so_while_it_is_compared_again() {
    let (outcome, differing) = ("comparing".to_owned(), vec!["d.t".to_owned()]);
    let check = CopyCheckView { outcome, differing, ..CopyCheckView::default() };
    let view = ChannelView { copy_check: Some(check), ..full() };
    let text = render(&[view], RELOAD, &FleetView::default()).expect("renders");
    assert!(text.contains("csa_copy_differs{channel=\"orders\"} 1"), "{text}");
}
