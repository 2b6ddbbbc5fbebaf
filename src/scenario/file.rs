//! A scenario as it is written down: `scenarios/*.toml`, which travel inside the program, or a file of
//! the user's.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use include_dir::{Dir, include_dir};
use serde::{Deserialize, Serialize};
use workloads::ConsumerMode;

use super::step::{Step, parse_steps};
use crate::exit::Failure;

static OURS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/scenarios");

/// A named incident.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Scenario {
    /// The file's name without `.toml`.
    #[serde(skip)]
    pub(crate) name: String,
    /// One line.
    pub(crate) title: String,
    /// KIPs, KAFKA numbers or other places where it is described.
    #[serde(default)]
    pub(crate) source: Vec<String>,
    /// Rules that it is about: `R24`.
    #[serde(default)]
    pub(crate) rules: Vec<String>,
    /// What happens, and what must be seen.
    pub(crate) about: String,
    /// The steps; see [`super::step`].
    pub(crate) steps: String,
    /// The cluster.
    #[serde(default)]
    pub(crate) cluster: ClusterShape,
    /// The topics.
    #[serde(default)]
    pub(crate) topic: TopicShape,
    /// What runs beside the steps, once they say `load on`.
    #[serde(default)]
    pub(crate) load: LoadShape,
    /// librdkafka settings of all producers.
    #[serde(default)]
    pub(crate) producer: BTreeMap<String, String>,
    /// What must come out, by system.
    #[serde(default)]
    pub(crate) expect: BTreeMap<String, Expectation>,
    /// The same scenario under other settings.
    #[serde(default)]
    pub(crate) variant: Vec<Variant>,
}

/// Nodes and their settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct ClusterShape {
    /// Nodes that hold replicas.
    pub(crate) brokers: u32,
    /// Controllers on nodes of their own.
    pub(crate) controllers: u32,
    /// Settings of every node.
    pub(crate) settings: BTreeMap<String, String>,
    /// Those of one system only, over the others.
    pub(crate) settings_of: BTreeMap<String, BTreeMap<String, String>>,
}

impl Default for ClusterShape {
    fn default() -> Self {
        Self { brokers: 3, controllers: 1, settings: BTreeMap::new(), settings_of: BTreeMap::new() }
    }
}

/// The topics, which are called `t`, or as `names` say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct TopicShape {
    /// Their names.
    pub(crate) names: Vec<String>,
    /// Partitions of each.
    pub(crate) partitions: u32,
    /// Replicas of each partition; absent: 3, or as many as there are brokers.
    pub(crate) replication_factor: Option<u32>,
    /// Settings of each.
    pub(crate) settings: BTreeMap<String, String>,
}

impl Default for TopicShape {
    fn default() -> Self {
        Self {
            names: vec!["t".to_owned()],
            partitions: 1,
            replication_factor: None,
            settings: BTreeMap::new(),
        }
    }
}

/// The workload beside the steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct LoadShape {
    /// Operations a second.
    pub(crate) rate: f64,
    /// Share of them that are polls.
    pub(crate) poll_share: f64,
    /// Producers.
    pub(crate) producers: u32,
    /// Consumers.
    pub(crate) consumers: u32,
    /// How they choose what they read: assign, subscribe or mixed.
    pub(crate) consumer_mode: ConsumerMode,
}

impl Default for LoadShape {
    fn default() -> Self {
        Self {
            rate: 100.0,
            poll_share: 0.2,
            producers: 1,
            consumers: 2,
            consumer_mode: ConsumerMode::Assign,
        }
    }
}

/// Other settings, and what comes out then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Variant {
    /// Its name, after the scenario's: `last-replica-standing/elr-off`.
    pub(crate) name: String,
    /// Settings of every node, over the scenario's.
    #[serde(default)]
    pub(crate) settings: BTreeMap<String, String>,
    /// Settings of one system's nodes only, over the scenario's.
    #[serde(default)]
    pub(crate) settings_of: BTreeMap<String, BTreeMap<String, String>>,
    /// Settings of the topics, over the scenario's.
    #[serde(default)]
    pub(crate) topic_settings: BTreeMap<String, String>,
    /// What must come out, by system; where it says nothing, what the scenario says.
    #[serde(default)]
    pub(crate) expect: BTreeMap<String, Expectation>,
}

/// What must come out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Expectation {
    /// A valid verdict.
    Valid,
    /// An invalid one, with each of these anomalies among what was found.
    Anomalies(Vec<String>),
    /// Nothing: it cannot run there, and this is why.
    Unsupported(String),
}

impl Scenario {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut scenario: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        name.clone_into(&mut scenario.name);
        scenario.parsed_steps()?;
        let named = |expect: &BTreeMap<String, Expectation>| {
            expect.keys().find(|system| !["highwater", "kafka"].contains(&system.as_str())).cloned()
        };
        let mut expects = std::iter::once(&scenario.expect)
            .chain(scenario.variant.iter().map(|variant| &variant.expect));
        if let Some(system) = expects.find_map(named) {
            return Err(format!("`expect.{system}`: there are highwater and kafka"));
        }
        Ok(scenario)
    }

    /// Its steps.
    ///
    /// # Errors
    /// What is wrong with one.
    pub(crate) fn parsed_steps(&self) -> Result<Vec<Step>, String> {
        parse_steps(&self.steps)
    }

    /// The scenario under each of its settings, each with a name of its own.
    pub(crate) fn variants(&self) -> Vec<Self> {
        if self.variant.is_empty() {
            return vec![self.clone()];
        }
        self.variant
            .iter()
            .map(|variant| {
                let mut one = Self { variant: Vec::new(), ..self.clone() };
                one.name = format!("{}/{}", self.name, variant.name);
                one.cluster.settings.extend(variant.settings.clone());
                for (system, settings) in &variant.settings_of {
                    let own = one.cluster.settings_of.entry(system.clone()).or_default();
                    own.extend(settings.clone());
                }
                one.topic.settings.extend(variant.topic_settings.clone());
                one.expect.extend(variant.expect.clone());
                one
            })
            .collect()
    }

    /// What must come out on `system`; where nothing is said, all must be well.
    pub(crate) fn expected(&self, system: &str) -> Expectation {
        self.expect.get(system).cloned().unwrap_or(Expectation::Valid)
    }
}

/// All of ours, in the order of their names.
///
/// # Errors
/// One cannot be read, which the tests would have seen.
pub(crate) fn ours() -> Result<Vec<Scenario>, Failure> {
    let mut all = Vec::new();
    for file in OURS.files() {
        let path = file.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = file.contents_utf8().unwrap_or_default();
        let scenario = Scenario::parse(&name, text)
            .map_err(|error| Failure::internal(format!("scenarios/{}: {error}", path.display())))?;
        all.push(scenario);
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// The scenarios meant by `all`, a name, `NAME/VARIANT` or the path of a `.toml` file; each variant by
/// itself.
///
/// # Errors
/// There is none of that name, or the file cannot be read.
pub(crate) fn find(wanted: &[String]) -> Result<Vec<Scenario>, Failure> {
    let ours = ours()?;
    let mut found = Vec::new();
    for text in wanted {
        let path = Path::new(text);
        if path.extension().is_some_and(|extension| extension == "toml") {
            found.extend(from_file(path)?.variants());
            continue;
        }
        let before = found.len();
        for scenario in ours.iter().flat_map(Scenario::variants) {
            let stem = scenario.name.split('/').next().unwrap_or_default();
            if text == "all" || *text == scenario.name || text == stem {
                found.push(scenario);
            }
        }
        if found.len() == before {
            let names: Vec<&str> = ours.iter().map(|scenario| scenario.name.as_str()).collect();
            return Err(Failure::usage(format!(
                "there is no scenario `{text}`; there are all, {}, and files that end in .toml",
                names.join(", ")
            )));
        }
    }
    Ok(found)
}

fn from_file(path: &Path) -> Result<Scenario, Failure> {
    let bad = |error: String| Failure::bad_data(format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Scenario::parse(&name, &text).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_can_be_read_and_say_where_they_come_from() {
        let ours = ours().unwrap();
        assert!(!ours.is_empty());
        for scenario in ours {
            let named = !scenario.source.is_empty() || !scenario.rules.is_empty();
            assert!(named, "{} names neither source nor rule", scenario.name);
        }
    }

    #[test]
    fn a_variant_changes_settings_and_expectation_and_nothing_else() {
        let text = "title='x'\nabout='y'\nsteps='read t-0'\nexpect.kafka='valid'\n\
                    [topic]\nsettings={a='1'}\n\
                    [[variant]]\nname='v'\ntopic-settings={a='2'}\n\
                    expect.kafka={anomalies=['lost-write']}";
        let variants = Scenario::parse("s", text).unwrap().variants();
        assert_eq!(variants.len(), 1);
        assert_eq!(variants[0].name, "s/v");
        assert_eq!(variants[0].topic.settings["a"], "2");
        let lost = Expectation::Anomalies(vec!["lost-write".into()]);
        assert_eq!(variants[0].expected("kafka"), lost);
        assert_eq!(variants[0].expected("highwater"), Expectation::Valid);
    }

    #[test]
    fn bad_files_are_refused_with_the_reason() {
        let told = |text: &str| Scenario::parse("s", text).unwrap_err();
        assert!(told("title='x'\nabout='y'\nsteps='fly'").contains("`fly` begins no step"));
        assert!(told("title='x'\nabout='y'\nsteps='read t-0'\nstep='1'").contains("step"));
        let system = "title='x'\nabout='y'\nsteps='read t-0'\nexpect.redpanda='valid'";
        assert!(told(system).contains("there are highwater and kafka"));
    }
}
