//! `csa-daemon`: an external replica of MySQL.

mod admin;
mod channel;
mod cli;
mod clock;
mod config;
mod logging;
mod metrics;
mod run;
mod status_command;
mod verify_command;
mod view;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};

/// How a command ended, as an exit code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Wrong input: nothing was written. Exit code 2.
    #[error("{0}")]
    Input(String),
    /// It went wrong later. Exit code 1.
    #[error("{0}")]
    Runtime(String),
    /// Not all could be compared. Exit code 2.
    #[error("{0}")]
    NotCompared(String),
    /// The servers differ. Exit code 1.
    #[error("{0}")]
    Different(String),
}

impl From<config::ConfigError> for Failure {
    fn from(error: config::ConfigError) -> Self {
        Self::Input(error.0)
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Run => run::run(&cli.config),
        Command::Check { connect } => run::check(&cli.config, connect),
        Command::Status { json, watch } => status_command::status(&cli.config, json, watch),
        Command::Verify(arguments) => verify_command::verify(&cli.config, &arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("csa-daemon: {failure}");
            match failure {
                Failure::Input(_) | Failure::NotCompared(_) => ExitCode::from(2),
                Failure::Runtime(_) | Failure::Different(_) => ExitCode::FAILURE,
            }
        }
    }
}
