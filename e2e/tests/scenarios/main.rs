//! The scenarios, one cluster for all of them, one namespace for each. Those that stay within their namespace run side
//! by side, the others one after the other.
//!
//! A harness of our own, because the cluster has to go away after the last scenario whatever happened: after failures
//! and panics by being dropped here, after an interrupt by the task that waits for signals.

mod api_server;
mod blocked;
mod crash;
mod cut_off;
mod hanging;
mod moved;
mod node;
mod operator_killed;
mod readme;
mod refused;
mod runbooks;
mod serving;

use futures::future::Either;
use libtest_mimic::{Arguments, Failed, Trial};
use mooncake_e2e::{clock::Moment, cluster::Cluster, report, say};
use std::{process::ExitCode, sync::Arc};
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
    sync::RwLock,
};

type Body = fn(Arc<Cluster>) -> futures::future::LocalBoxFuture<'static, anyhow::Result<()>>;

/// Whether others may run at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Company {
    /// It breaks or measures something that others share.
    Alone,
    /// What it does stays within its namespace.
    Others,
}
use Company::{Alone, Others};

/// How many of [`Others`] run at a time.
const AT_A_TIME: usize = 4;

/// Every scenario by its name.
const SCENARIOS: &[(&str, Company, Body)] = &[
    ("only_the_operator_sees_a_problem", Others, |c| Box::pin(async move { cut_off::operator(&c).await })),
    ("a_blocked_active_without_a_standby_leaves_the_service", Others, |c| {
        Box::pin(async move { blocked::without_standby(&c).await })
    }),
    ("an_active_with_a_held_shard_loses_the_role", Others, |c| {
        Box::pin(async move { moved::shard_held(&c).await })
    }),
    ("an_active_with_stuck_threads_loses_the_role", Others, |c| {
        Box::pin(async move { moved::threads_stuck(&c).await })
    }),
    ("bad_resources_are_refused_with_the_field", Others, |c| Box::pin(async move { refused::run(&c).await })),
    ("a_pair_serves", Others, |c| Box::pin(async move { serving::a_pair_serves(&c).await })),
    ("a_changed_template_rolls_the_standby_first", Others, |c| {
        Box::pin(async move { serving::roll(&c).await })
    }),
    ("the_commands_of_the_readme_work", Alone, |c| Box::pin(async move { readme::run(&c).await })),
    ("the_commands_of_the_runbooks_work", Alone, |c| Box::pin(async move { runbooks::run(&c) })),
    ("the_active_is_killed_without_an_operator", Alone, |c| Box::pin(async move { crash::killed(&c).await })),
    ("the_active_is_deleted_without_an_operator", Alone, |c| {
        Box::pin(async move { crash::deleted(&c).await })
    }),
    ("a_master_that_hangs_before_it_serves_is_replaced", Alone, |c| {
        Box::pin(async move { hanging::run(&c).await })
    }),
    ("the_operator_is_killed_at_each_write_of_a_move", Alone, |c| {
        Box::pin(async move { operator_killed::run(&c).await })
    }),
    ("the_node_of_the_active_is_cut_off", Alone, |c| Box::pin(async move { cut_off::active(&c).await })),
    ("the_node_of_the_active_is_drained", Alone, |c| Box::pin(async move { node::drained(&c).await })),
    ("the_kubelet_of_the_active_is_stopped", Alone, |c| {
        Box::pin(async move { node::kubelet_stopped(&c).await })
    }),
    ("the_api_server_hangs_for_10_s", Alone, |c| Box::pin(async move { api_server::hangs(&c).await })),
    ("the_api_server_is_down_for_60_s", Alone, |c| Box::pin(async move { api_server::down(&c).await })),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(AT_A_TIME);
    let runtime = match Runtime::new() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => {
            eprintln!("no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.list {
        let names = SCENARIOS.iter().map(|(name, ..)| Trial::test(*name, || Ok(()))).collect();
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
    let room = Arc::default();
    let trials = SCENARIOS
        .iter()
        .map(|(name, company, body)| trial(name, *company, *body, &cluster, &runtime, &room))
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    cluster.take_down();
    conclusion.exit_code()
}

fn trial(
    name: &'static str,
    company: Company,
    body: Body,
    cluster: &Arc<Cluster>,
    runtime: &Arc<Runtime>,
    room: &Arc<RwLock<()>>,
) -> Trial {
    let (cluster, runtime, room) = (cluster.clone(), runtime.clone(), room.clone());
    Trial::test(name, move || {
        let result = runtime.block_on(async {
            // Who waits longest is next, so the scenarios begin in the order of the list.
            let _room = match company {
                Alone => Either::Left(room.write().await),
                Others => Either::Right(room.read().await),
            };
            let began = Moment::now();
            let result = body(cluster).await;
            say!("    {name} took {:.1} s", Moment::now().since(began).as_secs_f64());
            result
        });
        print!("\n{}", report::take());
        result.map_err(|error| Failed::from(format!("{error:#}")))
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
