use std::path::PathBuf;

use clap::Args;

/// The folder in which Kubernetes puts the credentials of a pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

#[derive(Debug, Args)]
pub(crate) struct ControllerArguments {
    /// Folder for the files of the daemon, which runs with --config FOLDER/csa-daemon.toml.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) output: PathBuf,
    /// Write the files once and end, before the daemon starts.
    #[arg(long)]
    pub(crate) once: bool,
    /// Seconds between two reports of a channel's status.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) interval: u32,
    /// The API server; by default the one that Kubernetes names in the environment of a pod.
    #[arg(long, value_name = "https://HOST:PORT")]
    pub(crate) server: Option<String>,
    /// Folder with `token`, `ca.crt` and `namespace`.
    #[arg(long, value_name = "FOLDER", default_value = ACCOUNT)]
    pub(crate) account: PathBuf,
    /// The name of this pod in the column HOLDER.
    #[arg(long, value_name = "NAME", env = "HOSTNAME", default_value = "csa-daemon")]
    pub(crate) holder: String,
}
