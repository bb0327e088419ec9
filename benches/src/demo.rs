//! `csa-bench demo`: csa-daemon and a native replica follow the same source through a burst and a kill.

mod burst;
mod keep;
mod kill;
mod options;
mod site;
mod standing;
mod text;
mod watch;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use csa_tests::{Compare, Compared, Load, free_port};

pub(crate) use options::Options;

use burst::Burst;
use kill::LEVEL;
use site::Site;
use standing::Peak;
use text::{Summary, seconds};
use watch::Watch;

/// Returns success when everything recovered and both servers are equal in the end.
pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let port = free_port();
    println!("status page: http://127.0.0.1:{port}/");
    println!("   open it in a browser once csa-daemon has started (step 3); from another machine:");
    println!("   ssh -L {port}:127.0.0.1:{port} THIS-MACHINE, and the same address there");
    println!("Ctrl-C ends everything and removes its files\n");
    let site = Site::set_up(options, port).await?;
    let mut watch = Watch::start(&site).await?;
    let summary = follow(&site, &mut watch, options).await?;
    drop(watch);
    println!();
    for line in summary.lines() {
        println!("{line}");
    }
    if options.keep {
        keep::keep(&site).await?;
    }
    let daemon = site.daemon;
    let ended = tokio::task::spawn_blocking(move || daemon.terminate()).await;
    let ended = ended.context("stopping csa-daemon")?;
    ensure!(ended.success(), "csa-daemon ended with {ended}");
    Ok(if summary.is_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The phases: steady load, burst, kill, drain, comparison.
async fn follow(site: &Site, watch: &mut Watch, options: &Options) -> Result<Summary> {
    println!("\n{}", text::heading());
    let started = Instant::now();
    let before = watch.transactions();
    let steady = Load::start(&site.source, &options.steady_load());
    let lasts = |seconds| move |look: &watch::Look| look.elapsed >= Duration::from_secs(seconds);
    let first = watch.follow("steady", lasts(options.seconds)).await?;

    println!("burst: {} more sessions change 1 of 100 rows in each transaction", options.clients);
    let burst = Burst::start(&site.source, options);
    let in_burst = watch.follow("burst", lasts(options.burst_seconds)).await?;
    let burst_rate = in_burst.transactions as f64 / in_burst.elapsed.as_secs_f64();
    burst.stop().await?;
    println!("the burst is over, and the steady load continues");
    let patience = options.patience();
    let is_level = |look: &watch::Look| look.csa.lag < LEVEL && look.elapsed >= LEVEL * 2;
    let after = watch.follow("steady", |look| is_level(look) || look.elapsed > patience).await?;
    ensure!(after.elapsed <= patience, "csa-daemon was not level within {}", seconds(patience));

    let killed = kill::kill(site, watch, patience).await?;
    let last = watch.follow("steady", lasts(2)).await?;

    steady.stop().await;
    watch.stop_marks().await?;
    println!("drain: nothing more is written");
    let patience = options.drain_patience();
    let load = started.elapsed();
    let transactions = watch.transactions() - before;
    let (mut csa_drained, mut native_drained) = (None, None);
    let drain = watch.follow("drain", |look| {
        let drained = |standing: standing::Standing| {
            (standing.backlog == 0 && standing.is_reachable).then_some(look.elapsed)
        };
        csa_drained = csa_drained.or_else(|| drained(look.csa));
        native_drained = native_drained.or_else(|| drained(look.native));
        csa_drained.is_some() && native_drained.is_some() || look.elapsed > patience
    });
    let drain = drain.await?;
    let csa_drained = csa_drained.with_context(|| {
        format!("csa-daemon did not apply the rest within {}", seconds(patience))
    })?;
    site.daemon.wait_drained(&site.source, &site.target, patience).await;
    let (compared, is_equal) = compare(site).await;
    let others = [first, in_burst, after, last, drain];
    let native = Peak::worst(others.map(|phase| phase.native)).max(killed.phase.native);
    Ok(Summary {
        transactions,
        load,
        burst_rate,
        csa: Peak::worst(others.map(|phase| phase.csa)),
        csa_killed: killed.phase.csa,
        native,
        recovered: killed.recovered,
        target_back: killed.target_back,
        csa_drained,
        native_drained,
        patience,
        tables: compared.tables,
        rows: compared.rows,
        is_equal,
    })
}

/// Compares source and csa-daemon's target by content; prints the differences.
async fn compare(site: &Site) -> (Compared, bool) {
    let started = Instant::now();
    let outcome = Compare::new().run(&site.source, &site.target).await;
    println!(
        "compared all tables of the source and csa-daemon's target in {}",
        seconds(started.elapsed())
    );
    match outcome {
        Ok(equal) => (equal, true),
        Err(difference) => {
            println!("{difference}");
            (difference.compared, false)
        }
    }
}
