//! How the store is asked: clients with their time-outs, who asks, and where.

use crate::credentials::Keys;
use crate::errors::error;
use crate::options::Options;
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::{Certificate, ClientOptions, RetryConfig};
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};

const CONNECT: Duration = Duration::from_secs(5);

/// What the environment may say: who asks. Where and how is the URL's to say.
const FROM_ENVIRONMENT: [&str; 11] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_METADATA_ENDPOINT",
];

/// A client whose requests end within `timeout`, and whose answers go on within `silence`.
pub(crate) fn client(
    options: &Options,
    keys: Option<&Keys>,
    timeout: Duration,
    silence: Duration,
    retries: usize,
) -> Result<AmazonS3> {
    let secure = options.endpoint.as_ref().is_none_or(|endpoint| endpoint.starts_with("https:"));
    let http = http(options)?
        .with_timeout(timeout)
        .with_read_timeout(silence)
        .with_connect_timeout(CONNECT)
        .with_allow_http(!secure);
    let retry = RetryConfig {
        max_retries: retries,
        retry_timeout: Duration::from_secs(20),
        ..RetryConfig::default()
    };
    let mut builder = signed(options, keys)
        .with_bucket_name(&options.bucket)
        .with_virtual_hosted_style_request(options.virtual_host)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_disable_bulk_delete(true)
        // TLS vouches for what is under way; without it the signature has to.
        .with_unsigned_payload(secure)
        .with_client_options(http)
        .with_retry(retry);
    if let Some(endpoint) = options.address() {
        builder = builder.with_endpoint(endpoint);
    }
    builder.build().map_err(|refusal| error(format!("pool URL '{}'", options.place()), &refusal))
}

fn http(options: &Options) -> Result<ClientOptions> {
    let mut http = ClientOptions::new();
    let Some(path) = &options.ca else { return Ok(http) };
    let named =
        |e: String| Error::new(Kind::Invalid, format!("certificate authority '{}': {e}", path.display()));
    let pem = std::fs::read(path).map_err(|e| named(e.to_string()))?;
    for certificate in Certificate::from_pem_bundle(&pem).map_err(|e| named(e.to_string()))? {
        http = http.with_root_certificate(certificate);
    }
    Ok(http)
}

/// By a file's keys, or what the environment says; and the region.
fn signed(options: &Options, keys: Option<&Keys>) -> AmazonS3Builder {
    let mut builder = AmazonS3Builder::new();
    match keys {
        Some(keys) => {
            builder = builder.with_access_key_id(&keys.id).with_secret_access_key(&keys.secret);
            if let Some(token) = &keys.token {
                builder = builder.with_token(token);
            }
        }
        None => {
            for name in FROM_ENVIRONMENT {
                if let (Ok(value), Ok(key)) = (std::env::var(name), name.to_ascii_lowercase().parse()) {
                    builder = builder.with_config(key, value);
                }
            }
        }
    }
    let region = ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|name| std::env::var(name).ok());
    match options.region.clone().or(region) {
        Some(region) => builder.with_region(region),
        None => builder,
    }
}

/// Whether neither a URL nor the environment names who asks, so that the machine's own role is asked for keys.
pub(crate) fn is_keyless(keys: Option<&Keys>) -> bool {
    keys.is_none() && FROM_ENVIRONMENT.iter().all(|name| std::env::var_os(name).is_none())
}
