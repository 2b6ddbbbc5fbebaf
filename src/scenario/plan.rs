//! From a scenario to the plan of a run.

use workloads::{ConsumerPlan, ProducerPlan, QueuePlan};

use super::file::Scenario;
use super::step::Step;
use crate::cli::ScenarioArgs;
use crate::exit::Failure;
use crate::plan::{
    ClusterPlan, Plan, ScenarioPlan, fresh_seed, millis, millis_or_zero, pairs, parse_system,
};

/// Longest time that the load runs beside the steps, should they not end it.
const LOAD_LIMIT_MS: u64 = 600_000;
/// Longest time until the cluster is ready.
const READY_LIMIT_MS: u64 = 120_000;

impl Plan {
    /// The run that plays `scenario` as the flags say.
    ///
    /// # Errors
    /// A usage failure that names the flag, or bad data that names what the file has wrong.
    pub(crate) fn of_scenario(scenario: &Scenario, args: &ScenarioArgs) -> Result<Self, Failure> {
        let (system, version) = parse_system(&args.system)?;
        let mut system_config = scenario.cluster.settings.clone();
        system_config
            .extend(scenario.cluster.settings_of.get(&system).cloned().unwrap_or_default());
        system_config.extend(pairs("--system-config", &args.system_config)?);
        let brokers = scenario.cluster.brokers;
        let bad = |error: String| Failure::bad_data(format!("scenario {}: {error}", scenario.name));
        let steps = scenario.parsed_steps().map_err(bad)?;
        let relays = steps.iter().any(Step::stops_messages);
        let own_disks = steps.iter().any(Step::needs_disks);
        let cluster = ClusterPlan {
            system,
            version,
            backend: args.backend.name().into(),
            brokers,
            controllers: scenario.cluster.controllers,
            system_config,
            stock_timeouts: false,
            kafka_home: args.kafka_home.clone(),
            kafka_image: None,
            ready_limit_ms: READY_LIMIT_MS,
            own_disks,
            relays,
        };
        let queue = QueuePlan {
            topics: scenario.topic.names.clone(),
            partitions_per_topic: scenario.topic.partitions,
            producers: scenario.load.producers,
            consumers: scenario.load.consumers,
            rate_per_s: scenario.load.rate,
            poll_share: scenario.load.poll_share,
            time_limit_ms: LOAD_LIMIT_MS,
            producer: ProducerPlan { extra: scenario.producer.clone(), ..ProducerPlan::default() },
            consumer: ConsumerPlan { mode: scenario.load.consumer_mode, ..ConsumerPlan::default() },
            ..QueuePlan::default()
        };
        queue.validate().map_err(|error| bad(error.to_string()))?;
        let expected = scenario.expected(&cluster.system);
        Ok(Self {
            name: format!("scenario-{}", scenario.name.replace('/', "-")),
            seed: args.seed.unwrap_or_else(fresh_seed),
            cluster,
            workload: "queue".to_owned(),
            queue,
            replication_factor: scenario.topic.replication_factor.unwrap_or(brokers.min(3)),
            topic_config: scenario.topic.settings.clone(),
            nemesis: nemesis::NemesisPlan {
                faults: Vec::new(),
                targets: Vec::new(),
                partitions: Vec::new(),
                interval_ms: 1_000,
                script: Vec::new(),
            },
            time_limit_ms: LOAD_LIMIT_MS,
            probe_interval_ms: millis_or_zero("--probe-interval", args.probe_interval)?,
            recovery_limit_ms: millis("--recovery-limit", args.recovery_limit)?,
            keep_data: args.keep_data,
            scenario: Some(ScenarioPlan {
                name: scenario.name.clone(),
                steps: scenario.steps.clone(),
                expected,
            }),
        })
    }
}
