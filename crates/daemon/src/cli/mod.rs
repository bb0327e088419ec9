//! The command line: `run`, commands to the running daemon, and those that need none.

mod adopt;
mod archive;
mod arguments;
mod channel_table;
mod check;
mod check_notify;
mod client;
mod control;
mod controller;
mod copy;
mod copy_again;
mod copy_clone;
mod explanation;
mod fleet;
mod generate;
mod max_lag;
mod move_guard;
mod moving;
mod one_channel;
mod output;
mod page;
mod pattern;
mod relay;
mod restore;
mod screen;
mod server_errors;
mod several;
mod standing;
mod status;
mod table;
mod trace;
mod units;
mod verify;
mod watch;

use std::process::ExitCode;

use clap::Parser as _;
use csa_provider::server::visible::one_line;

use crate::host::Failure;
use crate::run;
use arguments::{Cli, Command};

/// Carries out the command of this process's command line.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Run if cli.admin.channel.is_some() => Err(Failure::Input(
            "run runs all channels of the configuration: leave --channel out".to_owned(),
        )),
        Command::Run => run::run(&cli.config),
        Command::Check(arguments) => {
            check::check(&cli.config, cli.admin.channel.as_deref(), &arguments)
        }
        Command::Adopt { from } => adopt::adopt(&cli.config, cli.admin.channel.as_deref(), &from),
        Command::Controller(arguments) => controller::control(&cli.config, cli.admin, arguments),
        Command::Page { without_token } => page::page(&cli.config, &cli.admin, without_token),
        Command::Control(command) => control::execute(&cli.config, &cli.admin, command),
        Command::Copy(arguments) if !arguments.table.is_empty() => {
            copy_again::copy_tables(&cli.config, &cli.admin, &arguments)
        }
        Command::Copy(arguments) if arguments.clone => {
            copy_clone::copy_clone(&cli.config, cli.admin.channel.as_deref(), &arguments)
        }
        Command::Copy(arguments) => {
            copy::copy(&cli.config, cli.admin.channel.as_deref(), &arguments)
        }
        Command::Restore(arguments) => {
            restore::restore(&cli.config, cli.admin.channel.as_deref(), &arguments)
        }
        Command::Archive { command } => {
            archive::archive(&cli.config, cli.admin.channel.as_deref(), &command)
        }
        Command::Verify(arguments) => verify::verify(&cli.config, &cli.admin, &arguments),
        Command::Move(arguments) => moving::move_applications(&cli.config, &cli.admin, arguments),
        Command::Generate { directory } => generate::generate(&directory),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&one_line(&failure.to_string()));
            ExitCode::from(&failure)
        }
    }
}
