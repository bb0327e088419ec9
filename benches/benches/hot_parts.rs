//! The code that every transaction or row passes through, each part alone on one core.

mod transactions;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use csa_provider::binlog::GtidSet;
use csa_relaystore::read::RelayedTransaction;
use csa_scheduler::admission::{Admission, AdmittedTransaction};
use csa_scheduler::changes::{RowChange, RowChanges};
use csa_scheduler::group::GroupLimits;
use csa_scheduler::key_source::{KeySource, KeySourceError};
use csa_scheduler::keys::{
    KeyClass, KeyPart, KeyRole, KeyUse, TableId, TableKeys, TableUse, UniqueKey,
};
use csa_scheduler::scheduler::Scheduler;
use csa_scheduler::sequence::Sequence;

use transactions::relayed;

const TRANSACTIONS: u64 = 100_000;

/// `t (id PRIMARY KEY, a, b, c)`.
struct Definitions;

impl KeySource for Definitions {
    async fn table(
        &mut self,
        _schema: &[u8],
        _table: &[u8],
    ) -> Result<(TableId, Option<Arc<TableKeys>>), KeySourceError> {
        let part = KeyPart { column: 0, class: KeyClass::Integer };
        let keys = TableKeys {
            columns: 4,
            unique: vec![UniqueKey { parts: vec![part] }],
            foreign_key_rank: Some(0),
            ..TableKeys::default()
        };
        Ok((TableId(1), Some(Arc::new(keys))))
    }

    async fn trigger_table(&mut self, _: &str, _: &str) -> Result<Option<String>, KeySourceError> {
        Ok(None)
    }

    fn forget(&mut self) {}
}

/// Returns a transaction with a writeset of four keys among a million.
fn with_four_keys(template: &RelayedTransaction, gno: u64) -> AdmittedTransaction {
    let key = |n: u64| {
        let spread = (gno * 4 + n).wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1_000_000;
        KeyUse::new(spread.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 2, KeyRole::Kept)
    };
    let changes = RowChanges {
        rows: vec![RowChange { start: 0, middle: 0, end: 0, keys_end: 4 }],
        keys: (0..4).map(key).collect(),
        tables: vec![TableUse::Rows(TableId(1))],
        ..RowChanges::default()
    };
    transactions::admitted(template, gno, changes)
}

fn scheduler(criterion: &mut Criterion) {
    let template = relayed(1, 1);
    let mut group = criterion.benchmark_group("scheduler");
    group.sample_size(20).throughput(Throughput::Elements(TRANSACTIONS));
    group.bench_function("four_key_transactions", |bencher| {
        bencher.iter_batched(
            || (1..=TRANSACTIONS).map(|gno| with_four_keys(&template, gno)).collect::<Vec<_>>(),
            |transactions| {
                let mut scheduler =
                    Scheduler::new(GroupLimits::default(), 8, Sequence::default(), GtidSet::new());
                let mut running = std::collections::VecDeque::new();
                let mut done = Vec::new();
                for transaction in transactions {
                    scheduler.admit(transaction);
                    if !scheduler.is_full() {
                        continue;
                    }
                    drain(&mut scheduler, &mut running, &mut done);
                }
                drain(&mut scheduler, &mut running, &mut done);
                // The workers drop applied transactions, so that is not measured here.
                (scheduler, done)
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn drain(
    scheduler: &mut Scheduler,
    running: &mut std::collections::VecDeque<csa_scheduler::group::Group>,
    done: &mut Vec<csa_scheduler::group::Group>,
) {
    loop {
        while let Some(group) = scheduler.next_group() {
            running.push_back(group);
        }
        let next = running.iter().enumerate().min_by_key(|(_, group)| group.sequence);
        let Some((index, _)) = next else { return };
        let Some(group) = running.remove(index) else { return };
        black_box(scheduler.committed(&group));
        done.push(group);
    }
}

fn admission(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("admission");
    for updates in [1, 10] {
        let transactions: Vec<_> = (1..=10_000).map(|gno| relayed(gno, updates)).collect();
        group.throughput(Throughput::Elements(transactions.len() as u64 * updates as u64));
        group.bench_function(format!("rows_of_{updates}_update_transactions"), |bencher| {
            bencher.iter(|| {
                let mut admission = Admission::new(Definitions);
                for transaction in &transactions {
                    black_box(admission.admit_now(transaction.clone(), None, true).expect("known"));
                }
            });
        });
    }
    group.finish();
}

criterion_group!(hot_parts, scheduler, admission);
criterion_main!(hot_parts);
