//! Tokens: made, listed, removed.

use super::Shared;
use super::answer::{Answer, Body, TokenPath};
use axum::Json;
use axum::http::StatusCode;
use stonefold_api::{Time, Token, TokenCreate, TokenCreated};

pub(super) async fn list(app: Shared) -> Json<Vec<Token>> {
    Json(app.access.tokens().into_iter().map(shown).collect())
}

pub(super) async fn create(
    app: Shared,
    Body(new): Body<TokenCreate>,
) -> Answer<(StatusCode, Json<TokenCreated>)> {
    let access = app.access.clone();
    let made =
        app.gate.run(move |store| async move { access.create(&store, new.name, new.role).await }).await?;
    let created = TokenCreated { token: shown(made.0), secret: made.1 };
    tracing::info!(token = %created.token.name, role = %created.token.role, "a token was made");
    Ok((StatusCode::CREATED, Json(created)))
}

pub(super) async fn remove(app: Shared, TokenPath(name): TokenPath) -> Answer<StatusCode> {
    let (access, gone) = (app.access.clone(), name.clone());
    app.gate.run(move |store| async move { access.remove(&store, &gone).await }).await?;
    tracing::info!(token = %name, "a token was removed");
    Ok(StatusCode::NO_CONTENT)
}

fn shown(token: stonefold_store::Token) -> Token {
    Token { name: token.name, role: token.role, created: Time::from_nanos(token.created) }
}
