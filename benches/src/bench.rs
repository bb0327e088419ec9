//! `bench`: csa-daemon and the server's own multi-threaded applier (MTA), each on its own target,
//! under the same loads.
//!
//! Everything runs on this machine. Absolute rates hold for one machine and one day; compare the
//! ratios.

mod appliers;
pub(crate) mod channels;
mod chart;
mod csa;
mod drain;
mod families;
mod flame;
mod idle;
mod load;
mod mta;
mod online;
mod options;
mod producer;
mod profile;
pub(crate) mod publish;
mod report;
mod script;
mod setup;
mod shape;
mod sizes;
mod stage;
mod statistics;
pub(crate) mod sysbench;
mod table;
mod tables;
mod transaction;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use drain::{DrainResult, Outcome};
use load::Load;
pub(crate) use mta::error_query as mta_error_query;
use options::Mode;
pub(crate) use options::Options;
use profile::Profile;
use report::Results;
use setup::Setup;
use stage::Stage;

/// Returns success when all tables were equal on all servers after every measurement.
pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let loads = match options.mode {
        Mode::Idle => Load::of_idle(options)?,
        Mode::Drain | Mode::Online => Load::all(options),
    };
    let mut results = Results::default();
    let mut ended = Ok(());
    for profile in &options.profile {
        ended = run_profile(*profile, options, &loads, &mut results).await;
        if ended.is_err() {
            break;
        }
    }
    // Measurements made before a failure are shown too.
    results.print(options);
    results.save(options, &loads)?;
    Ok(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("FAILED: {error:#}");
            ExitCode::FAILURE
        }
    })
}

async fn run_profile(
    profile: Profile,
    options: &Options,
    loads: &[Load],
    results: &mut Results,
) -> Result<()> {
    println!("profile {}: starting a source and two targets, filling tables", profile.name());
    let started = Instant::now();
    let stage = match Stage::set_up(profile, options, loads).await? {
        Setup::Ready(stage) => stage,
        Setup::Refused(why) => {
            println!("refused: {why}");
            if options.mode == Mode::Drain {
                let refused = |load: &Load| DrainResult {
                    profile,
                    load: load.clone(),
                    outcome: Outcome::Refused(why.clone()),
                };
                results.drain.extend(loads.iter().map(refused));
            }
            results.refused.push((profile, why));
            return Ok(());
        }
    };
    println!("ready after {:.0} s", started.elapsed().as_secs_f64());
    results.versions = Some(stage.versions.clone());
    if options.mode == Mode::Idle {
        results.idle.extend(idle::run(&stage, options).await?);
    }
    for load in loads.iter().filter(|_| options.mode != Mode::Idle) {
        println!("{}, {}:", load.name(), profile.name());
        match load {
            Load::Shape(shape) if options.mode == Mode::Online => {
                results.online.extend(online::run(&stage, *shape, options).await?);
            }
            _ => results.drain.push(drain::run(&stage, load, options).await?),
        }
    }
    results.source_rows.push((profile, stage.source_rows().await?));
    Ok(())
}
