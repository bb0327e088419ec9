//! Flame graphs of the processors' time while a backlog drains
//! (<https://queue.acm.org/detail.cfm?id=2927301>): `perf` samples the whole machine in a drain of its own, which counts
//! in no figure.

mod graph;
mod stacks;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use stacks::Stacks;

/// Samples a second on each processor; no multiple of what the kernel does regularly.
const RATE: &str = "499";

/// A recording under way.
#[derive(Debug)]
pub(super) struct Recording {
    perf: Child,
    data: PathBuf,
}

impl Recording {
    /// Samples every processor until [`Self::finish`].
    ///
    /// # Errors
    /// If there is no `perf`, or it may not look at other processes.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("creating {}", folder.display()))?;
        let data = folder.join("perf.data");
        let mut perf = Command::new("perf")
            .args(["record", "--all-cpus", "--call-graph", "fp", "--freq", RATE, "--output"])
            .arg(&data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting perf, which --flame needs")?;
        // It refuses at once, if it does.
        std::thread::sleep(Duration::from_millis(300));
        let refused = perf.try_wait().context("looking at perf")?;
        ensure!(refused.is_none(), "perf may not sample the machine (kernel.perf_event_paranoid)");
        Ok(Self { perf, data })
    }

    /// Ends it, and draws FOLDER/NAME.svg; `roles` names processes by their number.
    pub(super) fn finish(mut self, name: &str, roles: &BTreeMap<u32, &str>) -> Result<PathBuf> {
        let interrupted = Command::new("kill").args(["-INT", &self.perf.id().to_string()]).status();
        ensure!(interrupted.context("ending perf")?.success(), "perf ended before the drain");
        self.perf.wait().context("waiting for perf")?;
        let script = Command::new("perf")
            .args(["script", "--fields", "comm,pid,ip,sym", "--input"])
            .arg(&self.data)
            .stderr(Stdio::null())
            .output()
            .context("reading the samples with perf")?;
        ensure!(script.status.success(), "perf can't read {}", self.data.display());
        let stacks = Stacks::of(&String::from_utf8_lossy(&script.stdout), roles);
        let path = self.data.with_file_name(format!("{name}.svg"));
        std::fs::write(&path, graph::draw(name, &stacks))
            .with_context(|| format!("writing {}", path.display()))?;
        std::fs::remove_file(&self.data).context("removing the samples")?;
        Ok(path)
    }
}
