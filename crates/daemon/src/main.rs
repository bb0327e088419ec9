//! `csa-daemon`: an external replica of MySQL.

mod adopt_command;
mod advice;
mod api;
mod audit;
mod channel;
mod check_command;
mod cli;
mod clock;
mod config;
mod daemon;
mod fleet;
mod generate;
mod history;
mod kubernetes;
mod logging;
mod metrics;
mod page;
mod peers;
mod relay_dump;
mod reload;
mod row_values;
mod run;
mod sender;
mod service;
mod table;
mod timeline;
mod verify_command;
mod view;

use std::process::ExitCode;

use clap::Parser as _;
use csa_provider::visible::one_line;

use cli::{Cli, Command, Failure};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Run if cli.admin.channel.is_some() => Err(Failure::Input(
            "run runs all channels of the configuration: leave --channel out".to_owned(),
        )),
        Command::Run => run::run(&cli.config),
        Command::Check(arguments) => {
            check_command::check(&cli.config, cli.admin.channel.as_deref(), &arguments)
        }
        Command::Adopt { from } => {
            adopt_command::adopt(&cli.config, cli.admin.channel.as_deref(), &from)
        }
        Command::Controller(arguments) => kubernetes::control(&cli.config, cli.admin, arguments),
        Command::Control(command) => cli::execute(&cli.config, &cli.admin, command),
        Command::Verify(arguments) => verify_command::verify(&cli.config, &cli.admin, &arguments),
        Command::Generate { directory } => generate::generate(&directory),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("csa-daemon: {}", one_line(&failure.to_string()));
            ExitCode::from(&failure)
        }
    }
}
