use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// Log in to sources and targets and check what a first start needs; writes nothing.
    #[arg(long)]
    pub(crate) connect: bool,
    /// Read the source's tables as another user than the replicating one; SELECT is enough.
    #[arg(long, value_name = "USER", requires_all = ["source_password_file", "connect"])]
    pub(crate) source_user: Option<String>,
    /// File with that user's password.
    #[arg(long, value_name = "FILE", requires = "source_user")]
    pub(crate) source_password_file: Option<PathBuf>,
    /// Service that runs the servers, or one of them with source= or target= before the name:
    /// rds-mysql, aurora-mysql, cloud-sql or azure-mysql. Fixes are then those that work there.
    #[arg(long, value_name = "[SIDE=]SERVICE", requires = "connect")]
    pub(crate) profile: Vec<String>,
    /// Send a test event to the receiver of each channel (`[channel.notify]`), as the user who runs this.
    #[arg(long)]
    pub(crate) notify: bool,
    /// Print the findings as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
