//! `csa-daemon`: an external replica of MySQL. The README has the rooms and their direction. Public is only
//! `cli::main`, and the parts that the tests use without the daemon: a channel's progress, the comparison of its
//! two servers, the claims of a fleet, and copies that a simulation drives.

/// Declares an enum whose variants have names. `ALL` has those before the semicolon.
macro_rules! named {
    (
        $(#[$meta:meta])*
        $vis:vis enum $type:ident {
            $($(#[$attribute:meta])* $variant:ident = $name:literal,)+
            $(; $(#[$last_attribute:meta])* $last:ident = $last_name:literal,)?
        }
    ) => {
        $(#[$meta])*
        $vis enum $type {
            $($(#[$attribute])* $variant,)+
            $($(#[$last_attribute])* $last,)?
        }

        impl $type {
            // Not each enum needs it.
            #[allow(dead_code)]
            $vis const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                    $(Self::$last => $last_name,)?
                }
            }
        }
    };
}

mod admin;
mod archive;
mod channel;
pub mod claims;
pub mod cli;
mod config;
mod copy;
mod daemon;
mod host;
mod moving;
mod notify;
pub mod observe;
mod restore;
mod run;
mod servers;
mod throttle;
pub mod verify;

#[cfg(feature = "test-util")]
pub use copy::driven;
