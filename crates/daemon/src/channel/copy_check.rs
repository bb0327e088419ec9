//! The comparison that ends a copy, while the channel already follows its source.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tracing::{Instrument as _, error, info, warn};

use super::copy_watch::{CopyWatch, shown};
use super::watch::Watch;
use crate::config::ChannelSettings;
use crate::observe::view::CopyCheckView;
use crate::verify::{
    BEYOND_COPIES, Outcome, Replicated, Scope, TableName, TableReport, VerifyEvent, VerifyOptions,
    VerifyReport, delayed, source_servers, verify,
};

/// The comparison reads nothing while the target lags by more.
const LAG: Duration = Duration::from_secs(10);

/// The comparison, for as long as it is not dropped.
#[derive(Debug, Default)]
pub(super) struct CopyCheck {
    task: JoinSet<()>,
}

impl CopyCheck {
    /// Compares the copied tables from now on, if `copy.verify` is set, in place of an earlier comparison.
    pub(super) fn begin(&mut self, settings: &Arc<ChannelSettings>, watch: &Watch, scope: Scope) {
        if !settings.copy.verify {
            watch.with_copy(|copy| copy.copied_unchecked(&scope));
            return;
        }
        let comparison = Comparison::begin(settings, watch);
        self.task = JoinSet::new();
        let compared = compare(Arc::clone(settings), comparison, scope);
        self.task.spawn(compared.in_current_span());
    }
}

/// A comparison that the status shows. One that is dropped before its end is shown as unfinished: "comparing" would
/// keep the comparisons of `verify.every` waiting for it.
#[derive(Debug)]
struct Comparison {
    watch: Watch,
    number: u64,
    /// The text without a result.
    unfinished: String,
}

impl Comparison {
    fn begin(settings: &ChannelSettings, watch: &Watch) -> Self {
        let unfinished = format!(
            "the comparison was interrupted; csa-daemon verify --channel {} compares both",
            settings.name
        );
        let number = watch.with_copy(CopyWatch::check_begins);
        Self { watch: watch.clone(), number, unfinished }
    }

    fn ends(&self, check: CopyCheckView) {
        self.watch.with_copy(|copy| copy.check_ends(self.number, check));
    }
}

impl Drop for Comparison {
    fn drop(&mut self) {
        let (number, unfinished) = (self.number, &self.unfinished);
        if self.watch.with_copy(|copy| copy.check_given_up(number, unfinished)) {
            warn!("the copy was not compared with the source: {unfinished}");
        }
    }
}

async fn compare(settings: Arc<ChannelSettings>, comparison: Comparison, scope: Scope) {
    let channel = settings.name.as_str();
    let rate = settings.copy.rows_per_second;
    let source = source_servers(&settings.source);
    let differing = |copy: &mut CopyWatch| copy.check().map(|check| check.differing.clone());
    let known = comparison.watch.with_copy(differing).unwrap_or_default();
    let options = VerifyOptions {
        scope: with_differing(scope, &known),
        max_rate: (rate > 0).then_some(rate.into()),
        max_lag: Some(LAG),
        ..VerifyOptions::new(channel, source, (*settings.target).clone())
    };
    let observe = |event: VerifyEvent<'_>| {
        if let VerifyEvent::Table(table) = event
            && table.outcome == Outcome::Different
        {
            error!("the copy differs from the source in {}", table.table);
        }
    };
    let selection = Replicated::new(&settings.filters);
    let compared = tokio::select! {
        biased;
        why = waits_for_delay(&comparison.watch) => Err(why),
        compared = verify(&options, &selection, &observe) => {
            compared.map_err(|error| error.to_string())
        }
    };
    comparison.ends(match compared {
        Ok(report) => {
            let view = view(channel, &report, &known, comparison.watch.takes_copies());
            let (tables, rows) = (view.tables, view.rows);
            match view.outcome.as_str() {
                "equal" => info!(tables, rows, "the copy equals the source"),
                _ => warn!(tables, rows, "{}", view.text),
            }
            view
        }
        Err(error) => {
            warn!(%error, "the copy was not compared with the source");
            let text = format!("{error}; csa-daemon verify --channel {channel} compares both");
            CopyCheckView { outcome: "unfinished".to_owned(), text, ..CopyCheckView::default() }
        }
    });
}

/// Waits for a `source_delay` with which nothing is compared, and returns it in words.
async fn waits_for_delay(watch: &Watch) -> String {
    let mut delay = watch.subscribe_delay();
    loop {
        let seconds = delay.borrow_and_update().as_secs_f64();
        if let Some(why) = delayed(seconds) {
            return why;
        }
        if delay.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Adds tables that differ since an earlier copy, so that the result is of them, too. Those that were dropped or are no
/// longer replicated differ no more.
fn with_differing(mut scope: Scope, differing: &[String]) -> Scope {
    if !scope.is_everything() {
        scope.may_be_dropped = true;
        let named = differing.iter().filter_map(|name| name.parse::<TableName>().ok());
        scope.tables.extend(named);
    }
    scope
}

/// Returns the result in words. A table that is `known` to differ does so until it is found equal.
fn view(
    channel: &str,
    report: &VerifyReport,
    known: &[String],
    takes_copies: bool,
) -> CopyCheckView {
    let outcome = |table: &TableReport| match table.outcome {
        Outcome::Unstable if known.contains(&table.table.to_string()) => Outcome::Different,
        outcome => outcome,
    };
    let differs = report.tables.iter().any(|table| outcome(table) == Outcome::Different);
    let worst = if differs { Outcome::Different } else { report.outcome() };
    let differing = || report.tables.iter().filter(|table| outcome(table) == worst);
    let names: Vec<String> = differing().map(|table| table.table.to_string()).collect();
    let shown = shown(&names);
    let (outcome, text) = match worst {
        Outcome::Equal => ("equal", "the copy equals the source".to_owned()),
        Outcome::Unstable => (
            "unstable",
            format!(
                "the copy could not be compared in {shown}: csa-daemon verify --channel {channel} says why"
            ),
        ),
        Outcome::Different => (
            "different",
            format!(
                "the copy differs from the source in {shown}: csa-daemon verify --channel {channel} shows the rows, {}",
                match takes_copies {
                    _ if differing().all(TableReport::is_beyond_copies) =>
                        format!("which {BEYOND_COPIES}"),
                    true =>
                        format!("csa-daemon copy --channel {channel} --table copies a table again"),
                    false => "with --repair FILE it writes statements that repair them".to_owned(),
                }
            ),
        ),
    };
    CopyCheckView {
        outcome: outcome.to_owned(),
        tables: report.tables.len() as u64,
        rows: report.tables.iter().map(|table: &TableReport| table.rows).sum(),
        text,
        differing: if worst == Outcome::Different { names } else { Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::live_settings::Controls;
    use crate::config::Config;
    use crate::config::tests::MINIMAL;

    #[test]
    fn tables_that_differ_are_compared_with_those_copied_again() {
        let named = |table: &str| table.parse::<TableName>().expect("a name");
        let copied = Scope { tables: vec![named("d.a")], ..Scope::default() };
        let scope = with_differing(copied, &["d.b".to_owned()]);
        assert_eq!(scope.tables, [named("d.a"), named("d.b")]);
        assert!(scope.may_be_dropped);
        assert!(with_differing(Scope::default(), &["d.b".to_owned()]).is_everything());
    }

    /// Its rows kept changing, so that nothing is known of it now.
    #[test]
    fn a_table_that_is_known_to_differ_does_so_until_it_is_equal() {
        for (now, expected) in
            [("unstable", ("different", vec!["d.b".to_owned()])), ("equal", ("equal", Vec::new()))]
        {
            let tables = [("d.a", "equal"), ("d.b", now)].map(|(name, outcome)| {
                let table = serde_json::json!({
                    "table": name, "target": name, "outcome": outcome, "rows": 1, "definition": [], "differences": [],
                    "unstable": [], "left_out": null,
                });
                serde_json::from_value(table).expect("a report")
            });
            let report = VerifyReport { tables: tables.into(), ..VerifyReport::default() };
            let view = view("c", &report, &["d.b".to_owned()], true);
            assert_eq!((view.outcome.as_str(), view.differing), expected);
        }
    }

    #[test]
    fn a_run_that_ends_leaves_no_comparison_under_way() {
        let config = Config::parse(MINIMAL).expect("valid");
        let settings = Arc::new(config.channels.into_iter().next().expect("a channel"));
        let watch = Watch::new(&settings, Controls::new(&settings));
        let shown = || watch.view().copy_check.expect("a comparison");

        let comparison = Comparison::begin(&settings, &watch);
        assert_eq!(shown().outcome, "comparing");
        // The end of the run may abort the task before its first step.
        drop(compare(Arc::clone(&settings), comparison, Scope::default()));
        assert_eq!(shown().outcome, "unfinished");
        assert!(shown().text.contains("csa-daemon verify --channel orders"), "{:?}", shown());

        let comparison = Comparison::begin(&settings, &watch);
        let outcome = "equal".to_owned();
        comparison.ends(CopyCheckView { outcome, ..CopyCheckView::default() });
        drop(comparison);
        assert_eq!(shown().outcome, "equal");
    }

    #[tokio::test]
    async fn a_delay_ends_the_comparison() {
        let delayed = format!("{MINIMAL}[channel.applier]\nsource_delay = \"1h\"\n");
        let config = Config::parse(&delayed).expect("valid");
        let settings = Arc::new(config.channels.into_iter().next().expect("a channel"));
        let watch = Watch::new(&settings, Controls::new(&settings));
        let comparison = Comparison::begin(&settings, &watch);
        compare(Arc::clone(&settings), comparison, Scope::default()).await;
        let shown = watch.view().copy_check.expect("a comparison");
        assert_eq!(shown.outcome, "unfinished");
        assert!(shown.text.starts_with("source_delay is 3600 s"), "{}", shown.text);
    }
}
