//! What the holder of a token may do.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look at everything but tokens; change nothing.
    Viewer,
    /// Whatever is done with disks, snapshots and the cache.
    Operator,
    /// Also make and remove tokens.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 3] = [Role::Viewer, Role::Operator, Role::Admin];
}

impl FromStr for Role {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let named = Role::ALL.into_iter().find(|role| role.to_string() == text);
        named.ok_or_else(|| format!("'{text}' is not a role; choose admin, operator or viewer"))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_read_print_and_include_one_another() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse::<Role>().unwrap(), role);
        }
        assert!("root".parse::<Role>().is_err());
        assert!(Role::Viewer < Role::Operator && Role::Operator < Role::Admin);
    }
}
