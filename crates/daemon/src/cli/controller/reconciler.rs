//! The loop: read the resources, write the files, reload, report, wait for a change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::{error, info, warn};

use super::cluster::{Cluster, ClusterError};
use super::folder::{ChannelFiles, Folder, Wanted};
use super::resource::{GROUP, List, PLURAL, Reference, Resource, VERSION};
use super::resource_status::{ObservedResource, Problem};
use crate::cli::arguments::{Admin, ControllerArguments};
use crate::cli::client::Client;
use crate::host::{Failure, now_micros, rfc3339};
use crate::observe::view::{ReloadView, StatusView};

/// The pause after a failure, before the next attempt.
const PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Controller {
    cluster: Cluster,
    folder: Folder,
    /// The main file as the operator wrote it.
    main: PathBuf,
    admin: Admin,
    holder: String,
    interval: u32,
    /// The daemon has to read its files again.
    is_stale: bool,
    /// The last problem in the log, which is not repeated.
    logged: String,
}

/// A secret of the namespace, as the API server gives it.
#[derive(Debug, Deserialize)]
struct Secret {
    metadata: SecretMetadata,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecretMetadata {
    resource_version: String,
}

/// The outcome of a look at all resources.
struct SeenResources {
    list: List,
    /// The problems by the name of the resource.
    problems: BTreeMap<String, Problem>,
    /// The files of secrets that they name.
    used: BTreeSet<String>,
    /// Why the daemon has an earlier main file.
    main: Result<(), String>,
}

impl Controller {
    pub(super) fn new(
        main: &Path,
        admin: Admin,
        arguments: ControllerArguments,
    ) -> Result<Self, Failure> {
        let ControllerArguments { output, once: _, interval, server, account, holder } = arguments;
        let folder = Folder::new(&output)
            .map_err(|error| Failure::Input(format!("--output {}: {error}", output.display())))?;
        let cluster = Cluster::new(server.as_deref(), &account)?;
        let (main, logged) = (main.to_owned(), String::new());
        // The daemon may have read older files.
        Ok(Self { cluster, folder, main, admin, holder, interval, is_stale: true, logged })
    }

    pub(super) fn write_files(&mut self) -> Result<(), Failure> {
        let seen = self.adopt().map_err(Failure::Runtime)?;
        info!(channels = seen.list.items.len() - seen.problems.len(), "files written");
        if let Err(why) = seen.main {
            error!("{why}");
        }
        Ok(())
    }

    /// Runs without end: a signal ends the process.
    pub(super) fn run(&mut self) {
        info!(interval = self.interval, "watching ReplicationChannels");
        loop {
            match self.step() {
                Ok(()) => self.logged.clear(),
                Err(why) => {
                    if self.logged != why {
                        error!("{why}; the channels keep running, trying again");
                        self.logged = why;
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let seen = self.adopt()?;
        let client =
            Client::new(&self.folder.main(), &self.admin).map_err(|error| error.to_string());
        let view = client.and_then(|client| self.reload(&client, &seen));
        let mut reported = Ok(());
        for resource in &seen.list.items {
            let outcome = self.report(resource, &seen.problems, &view);
            let is_away = outcome.as_ref().is_err_and(|error| error.status.is_none());
            reported = reported.and(outcome);
            // One that is refused is no reason to leave out those after it.
            if is_away {
                break;
            }
        }
        // Only now: a daemon that does not answer is reported as pending.
        view?;
        seen.main?;
        reported.map_err(|error| error.to_string())?;
        match seen.problems.iter().find(|(_, problem)| !problem.is_mistake) {
            Some((name, problem)) => Err(format!("{name}: {}", problem.why)),
            None => self.wait(&seen.list),
        }
    }

    /// Leaves the daemon's files as the main file and the resources say.
    fn adopt(&mut self) -> Result<SeenResources, String> {
        let on_disk = |error: std::io::Error| format!("the daemon's files: {error}");
        let list: List =
            self.cluster.get(&resources_in(&self.cluster)).map_err(|why| why.to_string())?;
        let mut wanted = Wanted::new();
        let mut secrets = BTreeMap::new();
        let mut used = BTreeSet::new();
        for resource in &list.items {
            let mut is_mistake = true;
            let file = resource.file(|secret| {
                self.secret(secret, &mut secrets, &mut used).map_err(|problem| {
                    is_mistake = problem.is_mistake;
                    problem.why
                })
            });
            let file = file.map_err(|why| Problem { why, is_mistake });
            wanted.insert(resource.metadata.name.clone(), file);
        }
        let (main, files, is_own) = self.fitting(&mut wanted)?;
        let mut is_changed =
            self.folder.put(&self.folder.main(), main.as_bytes()).map_err(on_disk)?;
        for (name, text) in files {
            let file = self.folder.channel(&name);
            is_changed |= self.folder.put(&file, text.as_bytes()).map_err(on_disk)?;
        }
        for name in self.folder.channels().map_err(on_disk)? {
            if !wanted.contains_key(&name) {
                self.folder.remove_channel(&name).map_err(on_disk)?;
                is_changed = true;
            }
        }
        let problem = |(name, file): (String, Result<String, _>)| Some((name, file.err()?));
        let problems: BTreeMap<_, _> = wanted.into_iter().filter_map(problem).collect();
        self.is_stale |= is_changed;
        Ok(SeenResources { list, problems, used, main: is_own })
    }

    /// Returns the operator's main file with the channels' files. If a file that stays does not fit it, the main file stays
    /// too, and the third part says why. A daemon with the new one would refuse all channels.
    fn fitting(
        &self,
        wanted: &mut Wanted,
    ) -> Result<(String, ChannelFiles, Result<(), String>), String> {
        let mut fit = |main: String| {
            let files = self.folder.fitting(&main, wanted)?;
            Ok::<_, String>((main, files))
        };
        let own = std::fs::read_to_string(&self.main)
            .map_err(|error| format!("{}: {error}", self.main.display()));
        let why = match own.and_then(&mut fit) {
            Ok((main, files)) => return Ok((main, files, Ok(()))),
            Err(why) => format!("the main file is not adopted: {why}"),
        };
        // A pod that starts has none.
        let last = std::fs::read_to_string(self.folder.main()).map_err(|_| why.clone())?;
        let (main, files) = fit(last).map_err(|_| why.clone())?;
        Ok((main, files, Err(why)))
    }

    /// Returns the file with a secret.
    fn secret(
        &self,
        reference: &Reference,
        known: &mut BTreeMap<String, Result<Secret, Problem>>,
        used: &mut BTreeSet<String>,
    ) -> Result<String, Problem> {
        let Reference { name, key } = reference;
        // One that can't be read is not asked for again: each may take as long as the API server is silent.
        let secret = known.entry(name.clone()).or_insert_with(|| self.read_secret(name));
        let secret = secret.as_ref().map_err(Problem::clone)?;
        let none = || Problem::mistake(format!("secret {name} has no key {key}"));
        let value = secret.data.get(key).ok_or_else(none)?;
        let value = BASE64_STANDARD
            .decode(value)
            .map_err(|error| Problem::mistake(format!("secret {name}: {error}")))?;
        let version = &secret.metadata.resource_version;
        let file = self.folder.put_secret(&format!("{name}.{key}"), version, &value);
        let file = file.map_err(|error| Problem {
            why: format!("{}: {error}", self.folder.secrets().display()),
            is_mistake: false,
        })?;
        let path = self.folder.secrets().join(&file).display().to_string();
        used.insert(file);
        Ok(path)
    }

    fn read_secret(&self, name: &str) -> Result<Secret, Problem> {
        let path = self.cluster.path("api/v1", &format!("secrets/{name}"));
        self.cluster.get(&path).map_err(|error| match error.status {
            Some(404) => Problem::mistake(format!("there is no secret {name}")),
            status => Problem { why: error.to_string(), is_mistake: status == Some(403) },
        })
    }

    /// The daemon's status, after it has read files that changed.
    fn reload(&mut self, client: &Client, seen: &SeenResources) -> Result<StatusView, String> {
        if self.is_stale {
            let how = json!({ "restart": true });
            let done: ReloadView =
                client.post("/reload", &how).map_err(|error| error.to_string())?;
            info!(added = ?done.added, removed = ?done.removed, "reloaded");
            for pending in &done.pending {
                warn!(?pending, "needs a restart of the daemon");
            }
            self.is_stale = false;
            // Others may still be in use: by the file before a mistake, and by a channel that was not restarted.
            let is_adopted = done.pending.iter().all(|pending| pending.channel_name.is_none());
            if is_adopted && seen.problems.is_empty() {
                self.folder.keep_secrets(&seen.used).map_err(|error| error.to_string())?;
            }
        }
        client.get("/status").map_err(|error| error.to_string())
    }

    fn report(
        &self,
        resource: &Resource,
        problems: &BTreeMap<String, Problem>,
        view: &Result<StatusView, String>,
    ) -> Result<(), ClusterError> {
        let name = &resource.metadata.name;
        let channels = view.as_ref().map_or(&[][..], |view| &view.channels);
        let found = ObservedResource {
            holder: &self.holder,
            generation: resource.metadata.generation,
            problem: problems.get(name),
            away: view.as_ref().err().map(String::as_str),
            channel: channels.iter().find(|channel| channel.channel_name == *name),
            now: &rfc3339(now_micros()),
        };
        let Some(status) = resource.status.next(&found) else { return Ok(()) };
        if status == resource.status {
            return Ok(());
        }
        let path = self.cluster.path(&group(), &format!("{PLURAL}/{name}/status"));
        match self.cluster.merge(&path, &json!({ "status": status })) {
            // Deleted meanwhile.
            Err(error) if error.status == Some(404) => Ok(()),
            outcome => outcome,
        }
    }

    /// Until a resource comes, goes or changes, or it is time for the next report.
    fn wait(&self, list: &List) -> Result<(), String> {
        let after = &list.metadata.resource_version;
        let path = format!("{}?resourceVersion={after}", resources_in(&self.cluster));
        let is_news = |change: &Value| {
            let metadata = &change["object"]["metadata"];
            let known = list.items.iter().find(|known| metadata["name"] == *known.metadata.name);
            // Reports change the status, and no generation.
            let same =
                known.is_some_and(|known| metadata["generation"] == known.metadata.generation);
            change["type"] != "MODIFIED" || !same
        };
        self.cluster.watch(&path, self.interval, is_news).map_err(|why| why.to_string())
    }
}

fn group() -> String {
    format!("apis/{GROUP}/{VERSION}")
}

fn resources_in(cluster: &Cluster) -> String {
    cluster.path(&group(), PLURAL)
}

#[cfg(test)]
mod tests;
