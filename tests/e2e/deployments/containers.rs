//! The container image, and config/compose in a real engine.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use csa_tests::Daemon;
use serde_json::Value;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Returns the trimmed output of a command that succeeds.
#[track_caller]
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{problems}", output.status);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn build(output: &Path) -> String {
    let program = Daemon::executable();
    let mut script = Command::new(repository("config/container/build"));
    said(script.env("CSA_PACKAGE_LEVEL", "1").arg(program).arg(output))
}

fn unpack(tar: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a folder");
    said(Command::new("tar").arg("--extract").arg("--file").arg(tar).arg("--directory").arg(to));
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// True if this test may do what only root may; otherwise stderr says what is not tested.
fn is_root(part: &str) -> bool {
    let is_root = said(Command::new("id").arg("-u")) == "0";
    if !is_root {
        // Not println: the output of a test that passes is not shown.
        let _ = writeln!(std::io::stderr(), "\nNOT RUN: {part}: needs root\n");
    }
    is_root
}

/// Returns the blob that a descriptor names, which has the size and the digest stated there.
fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().and_then(|text| text.strip_prefix("sha256:"));
    let digest = digest.unwrap_or_else(|| panic!("no digest: {descriptor}"));
    let path = layout.join("blobs/sha256").join(digest);
    let size = std::fs::metadata(&path).expect("a blob").len();
    assert_eq!(descriptor["size"].as_u64(), Some(size), "{descriptor}");
    let sum = said(Command::new("sha256sum").arg(&path));
    assert!(sum.starts_with(digest), "{digest} is {sum}");
    path
}

#[test]
fn the_image_is_the_same_each_time_and_its_program_starts() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [first, second] = ["first.tar", "second.tar"].map(|name| directory.path().join(name));
    let digest = build(&first);
    assert_eq!(build(&second), digest, "two builds of one program");
    let [one, other] = [&first, &second].map(|file| std::fs::read(file).expect("reads"));
    assert!(one == other, "the archives differ");

    let layout = directory.path().join("layout");
    unpack(&first, &layout);
    let index = json(&layout.join("index.json"));
    assert_eq!(index["manifests"][0]["digest"], *digest);
    let manifest = json(&blob(&layout, &index["manifests"][0]));
    let config = json(&blob(&layout, &manifest["config"]));
    let layer = blob(&layout, &manifest["layers"][0]);
    // `docker load` reads the same blobs.
    let loaded = &json(&layout.join("manifest.json"))[0];
    for (named, path) in
        [(&loaded["Config"], &manifest["config"]), (&loaded["Layers"][0], &manifest["layers"][0])]
    {
        let digest = path["digest"].as_str().expect("a digest").replace(':', "/");
        assert_eq!(named.as_str(), Some(format!("blobs/{digest}").as_str()));
    }

    // The image of the Dockerfile and the manifests of Kubernetes have the same user, command and volume.
    let [dockerfile, set] = ["config/compose/Dockerfile", "config/kubernetes/statefulset.yaml"]
        .map(|path| std::fs::read_to_string(repository(path)).expect("reads"));
    let config = &config["config"];
    let user = config["User"].as_str().expect("a user");
    assert!(dockerfile.contains(&format!("USER {user}\n")), "{user}");
    let number = user.split(':').next().expect("a number");
    assert!(set.contains(&format!("runAsUser: {number}\n")), "{user}");
    for (key, instruction) in [("Entrypoint", "ENTRYPOINT"), ("Cmd", "CMD")] {
        assert!(dockerfile.contains(&format!("\n{instruction} {}\n", config[key])), "{key}");
    }
    for volume in config["Volumes"].as_object().expect("volumes").keys() {
        assert!(dockerfile.contains(&format!("VOLUME {volume}\n")), "{volume}");
    }
    let version = config["Labels"]["org.opencontainers.image.version"].as_str().expect("a version");
    assert!(set.contains(&format!("image: csa-daemon:{version}\n")), "{version}");

    if is_root("the start of the image's program (tests/e2e/deployments/containers.rs)") {
        let root = directory.path().join("root");
        unpack(&layer, &root);
        let inside = |arguments: &[&str]| {
            let arguments = arguments.iter().map(OsStr::new);
            said(
                Command::new("chroot").arg(format!("--userspec={user}")).arg(&root).args(arguments),
            )
        };
        assert_eq!(inside(&["/usr/bin/csa-daemon", "--version"]), format!("csa-daemon {version}"));
        let owner = said(
            Command::new("stat").args(["--format=%u:%g %a"]).arg(root.join("var/lib/csa-daemon")),
        );
        assert_eq!(owner, format!("{user} 750"));
    }
}

#[test]
fn the_compose_file_runs_in_a_real_engine() {
    if std::env::var_os("CSA_CONTAINERS").is_none() {
        let _ = writeln!(
            std::io::stderr(),
            "\nNOT RUN: containers (tests/containers), which take two minutes and root: set CSA_CONTAINERS=1\n"
        );
        return;
    }
    let mut script = Command::new(repository("tests/containers/run"));
    let said = said(script.env("CSA_DAEMON_BIN", Daemon::executable()));
    assert!(said.contains("source and target are equal"), "nothing was compared:\n{said}");
    println!("{said}");
}
