use std::collections::VecDeque;

use super::*;
use crate::binlog::gtid::{Gtid, Tag, Uuid};
use crate::source::reception::tests::RecordingInlet;
use crate::test_util::{event, gtid_event, query_event};

fn gtid(gno: u64) -> Gtid {
    Gtid { uuid: Uuid::from_bytes([9; 16]), tag: Tag::untagged(), gno }
}

/// The answers of a recording, one for each call.
enum Step {
    Events(Vec<RawEvent>),
    Away,
    Damaged,
}

/// Repeats everything from the first transaction on after each opening.
struct Script {
    steps: VecDeque<Step>,
    waiting: VecDeque<RawEvent>,
    opened: Vec<GtidSet>,
}

impl Script {
    fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let steps = steps.into_iter().collect();
        Self { steps, waiting: VecDeque::new(), opened: Vec::new() }
    }
}

impl Recording for Script {
    fn name(&self) -> String {
        "the script".to_owned()
    }

    fn server(&self) -> (String, String) {
        ("uuid".to_owned(), "9.7.0".to_owned())
    }

    async fn open(&mut self, received: &GtidSet) -> Result<(), RecordingError> {
        self.waiting.clear();
        self.opened.push(received.clone());
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<RawEvent>, RecordingError> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(Some(event));
            }
            match self.steps.pop_front() {
                Some(Step::Events(events)) => self.waiting.extend(events),
                Some(Step::Away) => return Err(RecordingError::Away("no answer".to_owned())),
                Some(Step::Damaged) => return Err(RecordingError::Final("damaged".to_owned())),
                None => return Ok(None),
            }
        }
    }
}

fn transaction(gno: u64) -> Vec<RawEvent> {
    vec![
        gtid_event(&gtid(gno), gno),
        query_event("d", "BEGIN"),
        event(EventType::XID, &gno.to_le_bytes()),
    ]
}

fn up_to(last: u64) -> GtidSet {
    let mut set = GtidSet::new();
    for gno in 1..=last {
        set.add(&gtid(gno));
    }
    set
}

#[tokio::test(start_paused = true)]
async fn what_was_received_is_passed_over_and_a_cut_is_read_again() {
    let cut = transaction(2).into_iter().take(2).collect();
    let script = Script::new([
        Step::Events(transaction(1)),
        Step::Events(cut),
        Step::Away,
        Step::Events([transaction(1), transaction(2), transaction(3)].concat()),
        Step::Damaged,
    ]);
    let sink = RecordingInlet::default();
    let status = Arc::default();
    let provider = RecordedProvider::new(script, GtidSet::new(), Arc::clone(&status));
    let end = provider.run(sink.clone(), CancellationToken::new()).await.unwrap_err();
    assert_eq!(end.to_string(), "reception: damaged");
    assert_eq!(sink.0.lock().received, up_to(3));
    assert_eq!(sink.0.lock().abandoned, [gtid(2)]);
    assert_eq!(sink.0.lock().events.len(), 4, "each BEGIN that was not passed over");
    let view = status.view();
    assert_eq!((view.transactions_total, view.connects_total), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn only_what_is_new_is_judged() {
    let as_text = |gno: u64| {
        vec![
            gtid_event(&gtid(gno), gno),
            query_event("d", "BEGIN"),
            event(EventType::BEGIN_LOAD_QUERY, &[0; 9]),
            query_event("d", "INSERT INTO t VALUES (1)"),
            event(EventType::XID, &gno.to_le_bytes()),
        ]
    };
    let without_end =
        |gno: u64| vec![gtid_event(&gtid(gno), gno), query_event("d", "CREATE TABLE t SELECT 1")];
    let events = [as_text(1), without_end(2), transaction(3), as_text(4)].concat();
    let sink = RecordingInlet::default();
    sink.0.lock().received = up_to(2);
    let script = Script::new([Step::Events(events)]);
    let provider = RecordedProvider::new(script, GtidSet::new(), Arc::default());
    let end = provider.run(sink.clone(), CancellationToken::new()).await.unwrap_err();
    assert_eq!(sink.0.lock().received, up_to(3));
    assert_eq!(end.gtid, Some(gtid(4)), "{end}");
    assert!(end.to_string().contains("binlog_format=ROW"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_recording_is_no_end_of_the_channel() {
    let sink = RecordingInlet::default();
    let status: Arc<SourceStatus> = Arc::default();
    let script = Script::new([Step::Events(transaction(1))]);
    let stop = CancellationToken::new();
    let provider = RecordedProvider::new(script, GtidSet::new(), Arc::clone(&status));
    let running = tokio::spawn(provider.run(sink.clone(), stop.clone()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(status.view().idle && status.view().connected);
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(sink.0.lock().received, up_to(1));
}

#[tokio::test(start_paused = true)]
async fn a_recording_that_ends_too_early_is_refused() {
    for (end, refused) in [(up_to(2), false), (up_to(4), true)] {
        let script = Script::new([Step::Events([transaction(1), transaction(2)].concat())]);
        let provider = RecordedProvider::new(script, end, Arc::default());
        let sink = RecordingInlet::default();
        let run = provider.run(sink.clone(), CancellationToken::new());
        let ended = tokio::time::timeout(Duration::from_secs(60), run).await;
        assert_eq!(sink.0.lock().received, up_to(2), "what there is is received");
        let error = ended.ok().map(|end| end.unwrap_err().to_string());
        assert_eq!(error.is_some(), refused, "{error:?}");
        assert!(
            error.is_none_or(
                |error| error.contains("lacks 09090909-0909-0909-0909-090909090909:3-4")
            )
        );
    }
}
