//! The place of an archive: a URL, and the options of its client.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, ObjectStoreScheme, RetryConfig};
use reqwest::Url;

use super::directory::DirectoryStore;
use super::error::{ArchiveError, Result, causes};

/// A URL and options of its client, for example `aws_endpoint`.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct ArchiveLocation {
    /// Without secrets: a URL with a password is refused.
    pub(crate) url: String,
    pub(crate) options: BTreeMap<String, String>,
}

/// Shows no values of options, which may be keys.
impl std::fmt::Debug for ArchiveLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys: Vec<&String> = self.options.keys().collect();
        f.debug_struct("ArchiveLocation").field("url", &self.url).field("options", &keys).finish()
    }
}

/// Attempts of one request: a channel's own pauses do the rest.
const RETRIES: usize = 3;
const RETRY_FOR: Duration = Duration::from_secs(20);
/// The time that one request may take, unless options or variables say otherwise. Two parts of a file at once then need
/// a link of 1.2 Mbit/s. Small objects have less time.
const REQUEST_FOR: &str = "120 seconds";

/// Makes a store by the options of the configuration and by the variables of the environment that its tools use, too.
macro_rules! built {
    ($builder:ty, $key:ty, $location:expr, $variables:expr) => {{
        let mut builder = <$builder>::from_env().with_url(&$location.url).with_retry(retries());
        let timeout = <$key>::Client(ClientConfigKey::Timeout);
        if builder.get_config_value(&timeout) == <$builder>::new().get_config_value(&timeout) {
            builder = builder.with_config(timeout, REQUEST_FOR);
        }
        for (key, value) in &$location.options {
            let known = key.to_ascii_lowercase().parse();
            let Ok(known) = known else { return Err(unknown(key, $variables)) };
            builder = builder.with_config(known, value);
        }
        Arc::new(builder.build().map_err(|error| wrong(&$location.url, &error))?)
    }};
}

impl ArchiveLocation {
    /// Returns the object store and the path in it, and the store once more if it is a directory. Asks nothing yet.
    pub(super) fn connect(&self) -> Result<(Arc<dyn ObjectStore>, Path, Option<DirectoryStore>)> {
        let url = Url::parse(&self.url).map_err(|error| {
            ArchiveError::Location(format!(
                "{:?} is no URL ({error}); s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, \
                 az://CONTAINER/PREFIX or file:///DIRECTORY is one",
                self.url
            ))
        })?;
        if url.password().is_some() {
            return Err(ArchiveError::Location(
                "a URL may not hold a password; use options, or variables of the environment"
                    .to_owned(),
            ));
        }
        // The client's library takes the process's choice; another one may have been made before.
        drop(rustls::crypto::ring::default_provider().install_default());
        let other = || {
            ArchiveError::Location(format!(
                "{}: an archive is kept in s3:, gs:, az: or file: URLs",
                self.url
            ))
        };
        if url.scheme() == "file" {
            let store = DirectoryStore::new(self.directory(&url)?);
            return Ok((Arc::new(store.clone()), Path::default(), Some(store)));
        }
        let (scheme, path) = ObjectStoreScheme::parse(&url).map_err(|_| other())?;
        let store: Arc<dyn ObjectStore> = match scheme {
            ObjectStoreScheme::AmazonS3 => {
                built!(AmazonS3Builder, AmazonS3ConfigKey, self, "aws_endpoint")
            }
            ObjectStoreScheme::GoogleCloudStorage => {
                built!(GoogleCloudStorageBuilder, GoogleConfigKey, self, "google_service_account")
            }
            ObjectStoreScheme::MicrosoftAzure => {
                built!(MicrosoftAzureBuilder, AzureConfigKey, self, "azure_storage_account_name")
            }
            _ => return Err(other()),
        };
        Ok((store, path, None))
    }

    /// Checks the URL and the options, as far as that needs no request.
    pub(crate) fn check(&self) -> Result<()> {
        self.connect().map(drop)
    }

    /// Returns the directory. It need not be there: its mount may come later, and no other channel waits for it.
    fn directory(&self, url: &Url) -> Result<PathBuf> {
        if let Some(key) = self.options.keys().next() {
            return Err(ArchiveError::Location(format!("{key}: a directory takes no options")));
        }
        url.to_file_path().map_err(|()| {
            ArchiveError::Location(format!("{}: no directory; file:///DIRECTORY is one", self.url))
        })
    }
}

fn retries() -> RetryConfig {
    RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_FOR, ..RetryConfig::default() }
}

fn unknown(key: &str, like: &str) -> ArchiveError {
    let known = ClientConfigKey::Timeout.as_ref().to_owned();
    ArchiveError::Location(format!(
        "options: {key} is not known for this kind of URL; {like} and {known} are examples"
    ))
}

fn wrong(url: &str, error: &dyn std::error::Error) -> ArchiveError {
    ArchiveError::Location(format!("{url}: {}", causes(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, options: &[(&str, &str)]) -> std::result::Result<(), String> {
        let options = options.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        let location = ArchiveLocation { url: url.to_owned(), options: options.collect() };
        location.check().map_err(|error| error.to_string())
    }

    #[test]
    fn wrong_places_are_refused_by_name() {
        for (url, options, part) in [
            ("/var/archive", &[][..], "is no URL"),
            ("ftp://host/x", &[], "s3:, gs:, az: or file:"),
            ("s3://key:secret@bucket/x", &[], "may not hold a password"),
            ("s3://bucket/x", &[("aws_endpiont", "http://x")], "aws_endpiont is not known"),
            ("file:///", &[("aws_region", "x")], "a directory takes no options"),
            ("file://nowhere/at/all", &[], "no directory"),
        ] {
            let refused = check(url, options).expect_err(url);
            assert!(refused.contains(part), "{url}: {refused}");
        }
        check("file:///nowhere/at/all", &[]).expect("it may be mounted later");
        check("s3://bucket/x", &[("aws_endpoint", "http://127.0.0.1:9"), ("timeout", "5 seconds")])
            .expect("known");
    }
}
