//! `csa-daemon`: an external replica of MySQL.

use std::process::ExitCode;

fn main() -> ExitCode {
    csa_daemon::cli::main()
}
