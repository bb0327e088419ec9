//! The scripts of sysbench, and their runs.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use csa_provider::binlog::GtidSet;
use csa_tests::Server;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::producer::Produced;
use super::sizes::Sizes;

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

impl Script {
    /// Takes what has a stem that can name a schema.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
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
    pub(super) fn new(program: PathBuf, script: Script, sizes: Sizes, threads: u32) -> Self {
        Self { program, script, sizes, threads, seed: sizes.seed }
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
