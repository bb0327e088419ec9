//! `sysbench`: drains of backlogs that sysbench's own scripts have written (<https://github.com/akopytov/sysbench>).

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use csa_provider::binlog::GtidSet;
use csa_tests::Server;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::options::Mode;
use super::producer::Produced;
use super::sizes::Sizes;

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

/// The name of a script that sysbench brings with it, or the path of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Script(String);

/// Runs one script again and again, on tables that [`ScriptRun::prepare`] made.
#[derive(Debug)]
pub(super) struct ScriptRun {
    program: PathBuf,
    script: Script,
    sizes: Sizes,
    threads: u32,
    /// Differs between runs: with the same seed a run would write the values that are there.
    seed: u64,
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

impl Script {
    /// Takes what has a stem that can name a schema.
    fn parse(text: &str) -> Result<Self, String> {
        let script = Self(text.to_owned());
        let stem = script.stem();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (!stem.is_empty() && stem.len() <= 64 && stem.bytes().all(is_name))
            .then_some(script)
            .ok_or_else(|| "expected a script whose name has letters, digits and _".to_owned())
    }

    /// Returns its name without folder and ending, which is also the schema of its tables.
    pub(super) fn stem(&self) -> &str {
        Path::new(&self.0).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
    }
}

impl ScriptRun {
    pub(super) fn new(script: &Script, options: &super::Options) -> Self {
        Self {
            program: options.sysbench.clone(),
            script: script.clone(),
            sizes: options.sizes,
            threads: options.producers,
            seed: options.sizes.seed,
        }
    }

    /// Creates and fills its tables, in a schema of its own.
    pub(super) async fn prepare(&mut self, source: &Server) -> Result<()> {
        source.exec(&format!("CREATE DATABASE {}", self.script.stem())).await;
        self.run(source, &["prepare".to_owned()]).await
    }

    /// Writes about a number of transactions: what changes nothing, or was rolled back, is none.
    pub(super) async fn backlog(&mut self, source: &Server, transactions: u64) -> Result<Produced> {
        let (gtids, rows) = (executed(source).await?, changed_rows(source).await);
        let started = Instant::now();
        let events = [format!("--events={transactions}"), "--time=0".to_owned(), "run".to_owned()];
        self.run(source, &events).await?;
        let seconds = started.elapsed().as_secs_f64();
        let transactions = executed(source).await?.difference(&gtids).count();
        ensure!(transactions > 0, "{} has written nothing", self.script.0);
        Ok(Produced { transactions, row_changes: changed_rows(source).await - rows, seconds })
    }

    async fn run(&mut self, source: &Server, more: &[String]) -> Result<()> {
        self.seed += 1;
        let output = Command::new(&self.program)
            .args(self.arguments(&source.socket))
            .args(more)
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("running {}", self.program.display()))?;
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        ensure!(output.status.success(), "sysbench {} failed:\n{}", self.script.0, said.concat());
        Ok(())
    }

    fn arguments(&self, socket: &Path) -> Vec<String> {
        vec![
            self.script.0.clone(),
            "--db-driver=mysql".to_owned(),
            format!("--mysql-socket={}", socket.display()),
            "--mysql-user=admin".to_owned(),
            "--mysql-password=admin_pw".to_owned(),
            format!("--mysql-db={}", self.script.stem()),
            format!("--tables={}", self.sizes.tables),
            format!("--table-size={}", self.sizes.rows),
            format!("--threads={}", self.threads),
            format!("--rand-seed={}", self.seed),
        ]
    }
}

async fn executed(server: &Server) -> Result<GtidSet> {
    server.gtid_executed().await.parse().context("gtid_executed")
}

/// The rows that the server has inserted, updated or deleted since its start.
async fn changed_rows(server: &Server) -> u64 {
    let counters = "SELECT CAST(SUM(VARIABLE_VALUE) AS UNSIGNED) FROM performance_schema.global_status \
         WHERE VARIABLE_NAME IN ('Innodb_rows_inserted', 'Innodb_rows_updated', 'Innodb_rows_deleted')";
    server.value(counters).await
}

#[cfg(test)]
mod tests {
    use super::Script;

    #[test]
    fn a_script_names_its_schema() {
        let stem = |text| Script::parse(text).map(|script| script.stem().to_owned());
        assert_eq!(stem("oltp_write_only"), Ok("oltp_write_only".to_owned()));
        assert_eq!(stem("/opt/scripts/mine_2.lua"), Ok("mine_2".to_owned()));
        for wrong in ["", "/", "a-b", "a b", "a`b", "scripts/.."] {
            assert!(stem(wrong).is_err(), "{wrong}");
        }
    }
}
