//! Histograms of the durations of steps. The client library's own histogram can only observe; these were
//! counted where the work was done.

use csa_provider::seams::BOUNDS_MICROS;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use super::{Result, Scrape, with};
use crate::observe::view::{ChannelView, DurationView, StepsView};

type ReadDuration = fn(&StepsView) -> &DurationView;

/// One histogram of all channels.
#[derive(Debug, Clone)]
struct Counted {
    desc: Desc,
    family: MetricFamily,
}

impl Collector for Counted {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        vec![self.family.clone()]
    }
}

impl Counted {
    fn new(name: &str, help: &str, read: ReadDuration, channels: &[ChannelView]) -> Result<Self> {
        let labels = vec!["channel".to_owned()];
        let desc = Desc::new(name.to_owned(), help.to_owned(), labels, Default::default())?;
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(with(name, channels).map(|view| of(view, read)).collect());
        Ok(Self { desc, family })
    }
}

fn of(view: &ChannelView, read: ReadDuration) -> Metric {
    let duration = read(&view.durations);
    let mut cumulative = 0;
    let buckets = BOUNDS_MICROS.iter().zip(duration.buckets).map(|(&bound, count)| {
        cumulative += count;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound as f64 / 1e6);
        bucket.set_cumulative_count(cumulative);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(duration.count);
    histogram.set_sample_sum(duration.seconds);
    let mut channel = LabelPair::default();
    channel.set_name("channel".to_owned());
    channel.set_value(view.channel_name.clone());
    let mut metric = Metric::from_label(vec![channel]);
    metric.set_histogram(histogram);
    metric
}

impl Scrape {
    pub(super) fn histograms(&self, channels: &[ChannelView]) -> Result<()> {
        let rows: [(&str, &str, ReadDuration); 10] = [
            (
                "csa_provider_reception_seconds",
                "Time from the commit of a transaction on the source until it was received as a whole.",
                |steps| &steps.reception,
            ),
            ("csa_relaystore_sync_seconds", "Duration of a sync of the relay store.", |steps| {
                &steps.relay_sync
            }),
            (
                "csa_scheduler_admission_wait_seconds",
                "Wait of a transaction for event memory and for room in the applier's queue.",
                |steps| &steps.admission_wait,
            ),
            (
                "csa_scheduler_group_formation_seconds",
                "Time from the arrival of a group's first transaction in the applier until a worker \
                 has the group.",
                |steps| &steps.group_formation,
            ),
            (
                "csa_applier_preparation_seconds",
                "Time in which a worker collected the rows of a group.",
                |steps| &steps.preparation,
            ),
            (
                "csa_applier_dependency_wait_seconds",
                "Wait of a group for the commits of groups with the same keys.",
                |steps| &steps.dependency_wait,
            ),
            (
                "csa_applier_statement_seconds",
                "Time in which the target executed a group's rows, or a statement that commits \
                 implicitly.",
                |steps| &steps.statement,
            ),
            (
                "csa_applier_commit_order_wait_seconds",
                "Wait of an applied group for the commits of all groups before it.",
                |steps| &steps.commit_order_wait,
            ),
            ("csa_applier_commit_seconds", "Duration of a group's COMMIT.", |steps| &steps.commit),
            (
                "csa_end_to_end_seconds",
                "Time from the commit of a group's first transaction on the source to the group's \
                 commit on the target.",
                |steps| &steps.end_to_end,
            ),
        ];
        for (name, help, read) in rows {
            self.register(Counted::new(name, help, read, channels)?)?;
        }
        Ok(())
    }
}
