use clap::Args;

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct MoveArguments {
    /// Show what the other option given would do, and do nothing. Without another option, show what comes next.
    #[arg(long)]
    pub(crate) plan: bool,
    #[command(flatten)]
    pub(crate) action: MoveAction,
    /// Leave out the comparison of all rows with `--prepare`.
    #[arg(long, requires = "prepare")]
    pub(crate) no_verify: bool,
}

#[derive(Debug, Clone, Copy, Args)]
#[group(id = "action", multiple = false)]
pub(crate) struct MoveAction {
    /// Close the new server to applications, wait until both channels follow, and compare all rows.
    #[arg(long)]
    pub(crate) prepare: bool,
    /// Move the applications to the new server, or finish a move that was interrupted.
    #[arg(long)]
    pub(crate) cut_over: bool,
    /// Move them back to the old server.
    #[arg(long)]
    pub(crate) back: bool,
    /// Give up a move that was interrupted before the new server was opened.
    #[arg(long)]
    pub(crate) undo: bool,
    /// Give up the way back: stop both channels, and say what remains to be done.
    #[arg(long)]
    pub(crate) finish: bool,
}
