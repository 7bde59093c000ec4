//! The scenarios, one cluster for all of them, one namespace for each, one after the other.
//!
//! A harness of our own, because the cluster has to go away after the last scenario whatever happened: after failures
//! and panics by being dropped here, after an interrupt by the task that waits for signals.

mod api_server;
mod crash;
mod cut_off;
mod readme;
mod refused;
mod runbooks;
mod serving;

use libtest_mimic::{Arguments, Failed, Trial};
use mooncake_e2e::{clock::Moment, cluster::Cluster};
use std::{process::ExitCode, sync::Arc};
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
};

type Body = fn(Arc<Cluster>) -> futures::future::LocalBoxFuture<'static, anyhow::Result<()>>;

/// Every scenario by its name, which is also its namespace (with dashes).
const SCENARIOS: &[(&str, Body)] = &[
    ("bad_resources_are_refused_with_the_field", |c| Box::pin(async move { refused::run(&c).await })),
    ("a_pair_serves", |c| Box::pin(async move { serving::a_pair_serves(&c).await })),
    ("a_changed_template_rolls_the_standby_first", |c| Box::pin(async move { serving::roll(&c).await })),
    ("the_commands_of_the_readme_work", |c| Box::pin(async move { readme::run(&c).await })),
    ("the_commands_of_the_runbooks_work", |c| Box::pin(async move { runbooks::run(&c) })),
    ("the_active_is_killed_without_an_operator", |c| Box::pin(async move { crash::killed(&c).await })),
    ("the_active_is_deleted_without_an_operator", |c| Box::pin(async move { crash::deleted(&c).await })),
    ("the_node_of_the_active_is_cut_off", |c| Box::pin(async move { cut_off::active(&c).await })),
    ("the_api_server_hangs_for_10_s", |c| Box::pin(async move { api_server::hangs(&c).await })),
    ("the_api_server_is_down_for_60_s", |c| Box::pin(async move { api_server::down(&c).await })),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let runtime = match Runtime::new() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.list {
        let names = SCENARIOS.iter().map(|(name, _)| Trial::test(*name, || Ok(()))).collect();
        return libtest_mimic::run(&arguments, names).exit_code();
    }

    let began = Moment::now();
    let cluster = runtime.block_on(async {
        tokio::select! {
            cluster = Cluster::start() => cluster,
            // Dropping the half-done start takes down what there is.
            () = interrupted() => Err(anyhow::anyhow!("interrupted")),
        }
    });
    let cluster = match cluster {
        Ok(cluster) => Arc::new(cluster),
        Err(error) => {
            eprintln!("no cluster: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    println!("cluster and operator deployed in {:.1} s", Moment::now().since(began).as_secs_f64());

    let take_down = cluster.clone();
    runtime.spawn(async move {
        interrupted().await;
        eprintln!("interrupted: taking the cluster down");
        take_down.take_down();
        std::process::exit(130);
    });
    let trials = SCENARIOS.iter().map(|(name, body)| trial(name, *body, &cluster, &runtime)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    cluster.take_down();
    conclusion.exit_code()
}

fn trial(name: &'static str, body: Body, cluster: &Arc<Cluster>, runtime: &Arc<Runtime>) -> Trial {
    let (cluster, runtime) = (cluster.clone(), runtime.clone());
    Trial::test(name, move || {
        let began = Moment::now();
        println!();
        let result = runtime.block_on(body(cluster));
        println!("    {name} took {:.1} s", Moment::now().since(began).as_secs_f64());
        result.map_err(|error| Failed::from(format!("{error:?}")))
    })
}

async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
