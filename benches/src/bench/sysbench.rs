//! `sysbench`: drains of backlogs that sysbench's own scripts have written (<https://github.com/akopytov/sysbench>).

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use tokio::process::Command;

use super::options::Mode;
use super::script::Script;

/// The arguments of `bench` that are for other modes or for loads of its own.
const OTHERS: [&str; 9] =
    ["mode", "load", "clients", "seconds", "rate", "samples", "pause", "wide_rows", "bulk_rows"];

#[derive(Debug, Clone, Args)]
#[command(mut_args(|argument| {
    let is_other = OTHERS.contains(&argument.get_id().as_str());
    argument.hide(is_other)
}))]
pub(crate) struct SysbenchOptions {
    /// Scripts of sysbench, by name or path: those that take --tables and --table-size and write.
    #[arg(default_value = "oltp_write_only", value_name = "SCRIPT", value_parser = Script::parse)]
    scripts: Vec<Script>,
    /// The program sysbench.
    #[arg(long, default_value = "sysbench", value_name = "PATH")]
    sysbench: PathBuf,
    #[command(flatten)]
    bench: super::Options,
}

/// Returns success when all tables were equal on both targets after every drain.
pub(crate) async fn run(options: &SysbenchOptions) -> Result<ExitCode> {
    let mut bench = options.bench.clone();
    ensure!(
        bench.mode == Mode::Drain && bench.load.is_empty(),
        "sysbench takes scripts, and drains only"
    );
    version(&options.sysbench).await?;
    bench.sysbench.clone_from(&options.sysbench);
    bench.scripts.clone_from(&options.scripts);
    super::run(&bench).await
}

/// Fails unless the program is there.
async fn version(program: &Path) -> Result<()> {
    let answer = Command::new(program).arg("--version").stdout(Stdio::null()).status().await;
    let name = program.display();
    let status = answer.with_context(|| {
        format!("{name} does not run: install sysbench, or give its path with --sysbench")
    })?;
    ensure!(status.success(), "{name} --version ended with {status}");
    Ok(())
}
