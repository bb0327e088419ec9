use super::*;
use crate::observe::view::ErrorView;

fn running() -> ChannelView {
    let mut view = ChannelView {
        channel_name: "shop".to_owned(),
        state: ChannelState::Running,
        state_detail: "applying, 1,234 transactions to go".to_owned(),
        lag_seconds: Some(12.3),
        backlog_transactions: Some(1234),
        backlog_bytes: Some(5 << 20),
        applied_transactions_per_second: Some(9000.4),
        received_transactions_per_second: Some(1.0),
        seconds_to_drain: Some(123.0),
        ..ChannelView::default()
    };
    view.bottleneck.cause = "target".to_owned();
    view.bottleneck.detail = "the target is executing".to_owned();
    view.bottleneck.share = 0.8;
    view.connection.source = "s:3306".to_owned();
    view.connection.source_version = Some("8.4.5".to_owned());
    view.connection.service_state = "ON".to_owned();
    view.applier.target = "t:3306".to_owned();
    view.applier.service_state = "ON".to_owned();
    view.settings.worker_count = 2;
    let worker = WorkerView { state: "waiting_for_turn".to_owned(), ..WorkerView::default() };
    view.applier.workers = vec![WorkerView { transactions: 1, ..worker }; 12];
    view
}

fn labels(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.split("  ").find(|part| !part.is_empty())).collect()
}

#[test]
fn the_lines_follow_the_questions_of_a_reader() {
    let text = one_channel(&running());
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= 35, "{text}");
    assert_eq!(lines[0], "channel        shop");
    assert_eq!(lines[1], "state          running");
    assert_eq!(lines[2], "why            applying, 1,234 transactions to go");
    assert_eq!(lines[3], "what to do     nothing");
    assert_eq!(lines[4], "");
    assert_eq!(lines[5], "lag            12.3 s");
    assert_eq!(lines[6], "backlog        1,234 transactions, 5.0 MiB");
    assert_eq!(lines[7], "rates          9,000 transactions/s applied, 1 received");
    assert_eq!(lines[8], "time to drain  2 min 3 s");
    let bottleneck = "bottleneck     target, 80 % of the last seconds: the target is executing";
    assert_eq!(lines[9], bottleneck);
    assert!(text.contains("source         s:3306, 8.4.5, receiving\n"), "{text}");
    assert!(text.contains("workers        12 of 2 busy\n"), "{text}");
    assert!(text.contains("waiting for turn ") && text.contains("  1 transaction\n"), "{text}");
    assert!(text.ends_with("and 4 more\n"), "{text}");
    let order = ["channel", "lag", "source", "target", "relay store", "workers"];
    let places = order.map(|label| labels(&text).iter().position(|one| *one == label));
    assert!(places.is_sorted() && places[0].is_some(), "{places:?}\n{text}");
}

#[test]
fn each_state_says_what_to_do() {
    let of = |state: ChannelState| to_do(&ChannelView { state, ..running() }).join("; ");
    assert!(of(ChannelState::Paused).ends_with("--channel shop resume"));
    assert!(of(ChannelState::Stopped).ends_with("--channel shop restart"));
    let state_detail = "stopped: until sql_after_gtids = a:1-5 is reached".to_owned();
    let at_end = ChannelView { state: ChannelState::Stopped, state_detail, ..running() };
    let steps = to_do(&at_end).join("; ");
    assert!(steps.contains("until --clear") && steps.contains("csa-daemon reload"), "{steps}");
    assert!(!steps.contains("restart"), "a restart stays there: {steps}");
    assert!(of(ChannelState::WaitingForSpace).contains("relay.min_free_disk"));
    assert_eq!(of(ChannelState::Standby), "nothing");
    assert!(of(ChannelState::Unknown).contains("the daemon's version"));
    assert!(of(ChannelState::Failed).ends_with("restart"));
    let mut failed = ChannelView { state: ChannelState::Failed, ..running() };
    let ways_on = vec!["skip it".to_owned(), "repair the row".to_owned()];
    let error = ErrorView { message: "1062".to_owned(), ways_on, ..ErrorView::default() };
    failed.last_error = Some(error);
    let text = one_channel(&failed);
    assert!(text.contains("why            1062\n"), "{text}");
    let steps = "what to do     1. skip it\n               2. repair the row\n";
    assert!(text.contains(steps), "{text}");
}

#[test]
fn a_refused_password_has_a_step_of_its_own() {
    let text = |detail: &str| {
        let state = ChannelState::WaitingForTarget;
        one_channel(&ChannelView {
            state,
            state_detail: detail.to_owned(),
            ..ChannelView::default()
        })
    };
    let refused = "target db7:3306: error 1045: Access denied for user 'csa'@'db1'";
    assert!(text(refused).contains("password_file"), "{}", text(refused));
    assert!(!text("target db7:3306: Connection refused").contains("password_file"));
    let revoked =
        "error 1045: 'repl'@'%' has logged in and may not replicate. On the source: GRANT";
    assert!(text(revoked).contains("Run that statement"), "{}", text(revoked));
}
