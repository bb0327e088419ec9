//! The numbers of rows, tables and transactions.

use clap::Args;
use serde::Serialize;

/// How large everything is.
#[derive(Debug, Clone, Copy, Args, Serialize)]
pub(super) struct Sizes {
    /// Transactions of a backlog with one change each; loads with more work in a transaction use a
    /// fraction of it (updates-10 a fifth). Unless set, drain mode takes backlogs of the time that
    /// --mta-seconds and --csa-seconds say.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) transactions: Option<u64>,
    /// Tables sbtest1 … sbtestN.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) tables: u32,
    /// Rows in each of them.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) rows: u64,
    /// Rows of 4 KiB (wide-row).
    #[arg(long, default_value_t = 8_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) wide_rows: u64,
    /// Rows that each transaction of the load bulk updates, at most all of a table.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) bulk_rows: u64,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
}
