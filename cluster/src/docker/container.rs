//! Containers as the engine is asked for them, and as it tells of them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::engine::Engine;
use super::engine_error::EngineError;
use super::gate;
use super::labels;
use crate::backend::Status;
use crate::node::{Launch, NodeSpec};

/// Where the processes of a container find their network.
#[derive(Clone, Debug)]
pub(super) enum Attachment {
    /// The run's network, at the node's address.
    Network(String),
    /// The namespace of a running container, by id.
    Container(String),
}

/// What the containers of a run have in common.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    pub(super) image: String,
    /// `uid:gid` that processes run as: the driver's own, so that files in the node's folder
    /// belong to whoever looks at them later.
    pub(super) user: String,
    pub(super) labels: BTreeMap<String, String>,
}

impl Surroundings {
    /// The container of a node.
    pub(super) fn node(&self, node: &NodeSpec, launch: &Launch, network: &str) -> Value {
        let command = gate::command_behind_gate(node, launch);
        let attachment = Attachment::Network(network.to_owned());
        let mut body = self.body(node, launch, &command, &attachment);
        // What a node says goes to its folder; the engine need not keep it a second time.
        body["HostConfig"]["LogConfig"] = json!({ "Type": "none" });
        body
    }

    /// A container that runs `launch` to its end beside a node.
    pub(super) fn one_off(&self, node: &NodeSpec, launch: &Launch, at: &Attachment) -> Value {
        let mut body = self.body(node, launch, &gate::command(launch), at);
        body["HostConfig"]["LogConfig"] = json!({ "Type": "json-file" });
        body
    }

    fn body(&self, node: &NodeSpec, launch: &Launch, command: &[String], at: &Attachment) -> Value {
        let mut mounts = vec![bind(&node.dir, false)];
        mounts.extend(launch.read_only.iter().map(|path| bind(path, true)));
        let mut all_labels = self.labels.clone();
        all_labels.insert(labels::NODE.into(), node.name.to_string());
        let mut body = json!({
            "Image": self.image,
            "Entrypoint": command,
            "Cmd": [],
            "User": self.user,
            "WorkingDir": node.dir,
            "Labels": all_labels,
            "StopSignal": "SIGTERM",
            "Healthcheck": { "Test": ["NONE"] },
            "HostConfig": {
                "Mounts": mounts,
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges", "label=disable"],
                "UsernsMode": "host",
                "RestartPolicy": { "Name": "no" },
            },
        });
        match at {
            Attachment::Network(name) => {
                body["Hostname"] = json!(node.name);
                body["HostConfig"]["NetworkMode"] = json!(name);
                body["NetworkingConfig"] = json!({
                    "EndpointsConfig": { name: { "IPAMConfig": { "IPv4Address": node.address } } },
                });
            }
            Attachment::Container(id) => {
                body["HostConfig"]["NetworkMode"] = json!(format!("container:{id}"));
            }
        }
        body
    }
}

/// A hash of what the engine is asked for: the same container can be started again while it
/// stays the same.
pub(super) fn digest(body: &Value) -> String {
    format!("{:x}", Sha256::digest(body.to_string()))
}

fn bind(path: &Path, read_only: bool) -> Value {
    json!({ "Type": "bind", "Source": path, "Target": path, "ReadOnly": read_only })
}

/// What the engine tells of a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Inspection {
    pub(super) state: State,
}

/// The state of a container's main process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct State {
    status: String,
    #[serde(default)]
    running: bool,
    #[serde(default)]
    paused: bool,
    #[serde(default)]
    pid: i32,
    #[serde(default)]
    exit_code: i32,
    #[serde(default)]
    pub(super) error: String,
}

impl State {
    pub(super) fn status(&self) -> Status {
        let pid = self.pid;
        match self.status.as_str() {
            "created" => Status::NotStarted,
            _ if self.paused => Status::Paused { pid },
            _ if self.running && pid > 0 => Status::Running { pid },
            _ => Status::Exited { code: self.exit_code },
        }
    }
}

/// Makes a container that does not run yet; its id.
pub(super) async fn create(
    engine: &Engine,
    name: &str,
    body: &Value,
) -> Result<String, EngineError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Created {
        id: String,
    }
    let created: Created = engine.create("/containers/create", &[("name", name)], body).await?;
    Ok(created.id)
}

/// What the engine tells of it; `None` where it does not exist.
pub(super) async fn inspect(engine: &Engine, id: &str) -> Result<Option<Inspection>, EngineError> {
    engine.find(&format!("/containers/{id}/json")).await
}

/// Removes a container in any state, with its anonymous volumes. One that is gone is fine.
pub(super) async fn remove(engine: &Engine, id: &str) -> Result<(), EngineError> {
    let path = format!("/containers/{id}");
    let by_force = [("force", "1"), ("v", "1")];
    match engine.remove(&path, &by_force).await {
        Ok(()) => Ok(()),
        // What is wanted is under way already.
        Err(error) if error.to_string().contains("already in progress") => Ok(()),
        Err(_) => {
            // Some engines cannot kill what is frozen.
            let _ = engine.act(&format!("{path}/unpause"), &[]).await;
            engine.remove(&path, &by_force).await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::path::PathBuf;

    use super::*;
    use crate::node::{NodeName, Role};

    fn node() -> NodeSpec {
        NodeSpec {
            name: NodeName::new(2),
            role: Role::Combined,
            address: Ipv4Addr::new(10, 118, 0, 12),
            dir: PathBuf::from("/run/x/n2"),
        }
    }

    fn surroundings() -> Surroundings {
        Surroundings {
            image: "i:1".into(),
            user: "7:8".into(),
            labels: BTreeMap::from([("highwater".into(), "1".into())]),
        }
    }

    #[test]
    fn a_node_has_its_folder_its_address_and_no_rights() {
        let launch = Launch::new(["java"]).reading(Path::new("/opt/libs"));
        let body = surroundings().node(&node(), &launch, "highwater-r");
        let host = &body["HostConfig"];
        assert_eq!(body["User"], "7:8");
        assert_eq!(body["Labels"]["highwater.node"], "n2");
        assert_eq!(host["CapDrop"], json!(["ALL"]));
        assert_eq!(host["RestartPolicy"]["Name"], "no");
        assert_eq!(host["Mounts"][0], bind(Path::new("/run/x/n2"), false));
        assert_eq!(host["Mounts"][1], bind(Path::new("/opt/libs"), true));
        let endpoint = &body["NetworkingConfig"]["EndpointsConfig"]["highwater-r"];
        assert_eq!(endpoint["IPAMConfig"]["IPv4Address"], "10.118.0.12");
    }

    #[test]
    fn a_changed_launch_is_another_container() {
        let launch = Launch::new(["java"]);
        let body = surroundings().node(&node(), &launch, "net");
        assert_eq!(digest(&body), digest(&surroundings().node(&node(), &launch, "net")));
        let other = surroundings().node(&node(), &Launch::new(["java", "-x"]), "net");
        assert_ne!(digest(&body), digest(&other));
    }

    #[test]
    fn beside_a_running_node_its_network_is_shared() {
        let at = Attachment::Container("abc".into());
        let body = surroundings().one_off(&node(), &Launch::new(["ls"]), &at);
        assert_eq!(body["HostConfig"]["NetworkMode"], "container:abc");
        assert!(body.get("Hostname").is_none(), "refused by the engine with a shared network");
    }

    #[test]
    fn states_are_read() {
        let state = |text: &str| serde_json::from_str::<State>(text).unwrap().status();
        assert_eq!(state(r#"{"Status":"created"}"#), Status::NotStarted);
        let running = r#"{"Status":"running","Running":true,"Pid":9}"#;
        assert_eq!(state(running), Status::Running { pid: 9 });
        let paused = r#"{"Status":"paused","Running":true,"Paused":true,"Pid":9}"#;
        assert_eq!(state(paused), Status::Paused { pid: 9 });
        let exited = r#"{"Status":"exited","Pid":0,"ExitCode":137}"#;
        assert_eq!(state(exited), Status::Exited { code: 137 });
    }
}
