//! `wingman login`, `logout`, `dashboard`: sessions by single-use tickets.

use std::io::Read;

use clap::Args;
use serde_json::json;

use super::Globals;
use super::output::{self, clean};
use crate::base::Secret;
use crate::base::error::exit;
use crate::client::login::{self, Login};
use crate::client::{Caller, HttpCaller, address};
use crate::wire::messages::Empty;
use crate::wire::messages::auth::TicketCreate;
use crate::wire::messages::http::{Logout, Redeem, RedeemParams};
use crate::wire::{Code, Fault};

/// Log in to a server with a ticket and save the session for later commands.
///
/// A server prints a login address at its first start; `wingman dashboard` prints one where you are
/// logged in already. Each works once.
#[derive(Clone, Debug, Args)]
pub struct LoginArgs {
    /// The login address, or the server's address with the ticket after it.
    #[arg(value_name = "URL")]
    url: String,
    /// The ticket (wml_…), where the address has none; `-` reads it from standard input.
    #[arg(value_name = "TICKET")]
    ticket: Option<String>,
    /// What the session is called in lists; this machine's name when absent.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

/// End the saved session and forget it.
#[derive(Clone, Debug, Args)]
pub struct LogoutArgs {}

/// Print an address that opens the dashboard in a browser, once and within a minute.
#[derive(Clone, Debug, Args)]
pub struct DashboardArgs {}

pub(super) async fn login(args: LoginArgs, globals: &Globals) -> Result<u8, Fault> {
    let (server, ticket) = split(&args)?;
    let http = HttpCaller::new(&server, None, globals.pin.as_deref())?;
    let caller = Caller::Http { http, agent: None };
    let params = RedeemParams {
        ticket,
        device_name: args.device.or_else(sysinfo::System::host_name),
    };
    let session = caller.call::<Redeem>(&params).await?;
    let saved = Login {
        server: server.clone(),
        token: session.token,
        pin: globals.pin.clone(),
    };
    login::save(&globals.paths()?.login(), &saved)?;
    if globals.json {
        output::json(&json!({
            "server": server,
            "sessionId": session.session_id,
            "expiresAt": session.expires_at,
            "me": session.me,
        }));
    } else {
        let name = clean(&session.me.username);
        let until = session.expires_at.rfc3339();
        output::note(&format!("logged in to {server} as {name} until {until}"));
    }
    Ok(exit::OK)
}

/// The server and the ticket, from one text or from two.
fn split(args: &LoginArgs) -> Result<(String, Secret), Fault> {
    let (url, query) = match args.url.split_once('?') {
        Some((url, query)) => (url, Some(query)),
        None => (args.url.as_str(), None),
    };
    let server = address(url.trim_end_matches('/').trim_end_matches("/login"));
    let in_query = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .find_map(|pair| pair.strip_prefix("ticket="));
    let ticket = match (in_query, args.ticket.as_deref()) {
        (Some(ticket), None) => ticket.to_owned(),
        (None, Some("-")) => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| {
                    Fault::new(Code::InvalidParams, format!("read standard input: {error}"))
                })?;
            text
        }
        (None, Some(ticket)) => ticket.to_owned(),
        (Some(_), Some(_)) => {
            let text = "the address has a ticket, and a second one was given";
            return Err(Fault::new(Code::InvalidParams, text));
        }
        (None, None) => {
            let text = "a ticket is needed: the server prints a login address at its first start, \
                        wingman dashboard prints one where you are logged in";
            return Err(Fault::new(Code::InvalidParams, text));
        }
    };
    Ok((server, Secret::new(ticket.trim())))
}

pub(super) async fn logout(_args: LogoutArgs, globals: &Globals) -> Result<u8, Fault> {
    let path = globals.paths()?.login();
    let Some(saved) = login::read(&path)? else {
        output::note("not logged in");
        return Ok(exit::OK);
    };
    let server = saved.server.clone();
    let http = HttpCaller::new(&saved.server, Some(saved.token), saved.pin.as_deref())?;
    let caller = Caller::Http { http, agent: None };
    let ended = caller.call::<Logout>(&Empty {}).await;
    login::forget(&path)?;
    match ended {
        Ok(Empty {}) => output::note(&format!("logged out of {server}")),
        // It had ended there already.
        Err(fault) if fault.code == Code::Unauthenticated => {
            output::note(&format!("logged out of {server}"));
        }
        Err(fault) => {
            output::note(&format!(
                "forgot the login; the session at {server} may live on"
            ));
            return Err(fault);
        }
    }
    Ok(exit::OK)
}

pub(super) async fn dashboard(_args: DashboardArgs, globals: &Globals) -> Result<u8, Fault> {
    let caller = globals.caller().await?;
    if caller.is_local() {
        let text =
            "the dashboard is the server's, and none is known: see --server and wingman login";
        return Err(Fault::new(Code::EndpointUnavailable, text));
    }
    let ticket = caller.call::<TicketCreate>(&Empty {}).await?;
    if globals.json {
        output::json(&ticket);
    } else {
        output::line(&ticket.url);
        output::note(&format!("works once, until {}", clean(&ticket.expires_at)));
    }
    Ok(exit::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str, ticket: Option<&str>) -> Result<(String, String), Code> {
        let args = LoginArgs {
            url: url.into(),
            ticket: ticket.map(str::to_owned),
            device: None,
        };
        let (server, ticket) = split(&args).map_err(|fault| fault.code)?;
        Ok((server, ticket.expose().to_owned()))
    }

    #[test]
    fn login_takes_the_printed_address_or_its_parts() {
        let both = |server: &str, ticket: &str| Ok((server.to_owned(), ticket.to_owned()));
        let printed = "http://127.0.0.1:9527/login?ticket=wml_abc";
        assert_eq!(of(printed, None), both("http://127.0.0.1:9527", "wml_abc"));
        assert_eq!(
            of("host:9527/", Some("wml_x")),
            both("https://host:9527", "wml_x")
        );
        assert_eq!(of("host", None), Err(Code::InvalidParams));
        assert_eq!(of(printed, Some("wml_x")), Err(Code::InvalidParams));
    }
}
