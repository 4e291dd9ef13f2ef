//! The `event!` macro: declares hook events, their inputs and their outputs.
//!
//! ```text
//! event! {
//!     /// When the event happens.
//!     PreToolUse: PreToolUseInput, PreToolUseOutput, PreToolUseFields;
//!     input { tool_name: String, }        required: without one of these the hook fails
//!     may { duration_ms: u64, }           optional: left in `extra` when the type does not fit
//!     output { additional_context: String, updated_mcp: Value = "updatedMCP", };
//!     /// Events of one file are separated by `;`.
//!     SessionEnd: SessionEndInput, SessionEndOutput;
//!     input { reason: String, }
//! }
//! ```
//!
//! Fields need a doc comment only where the name leaves something open: names are those of the wire.

macro_rules! event {
    (
        $(
            $(#[doc = $doc:expr])*
            $event:ident: $input:ident, $output:ident $(, $fields:ident)?;
            $( $part:ident { $($body:tt)* } )+
        );+
    ) => {$(
        $crate::control::hook::define::event! {
            @one $(#[doc = $doc])* $event: $input, $output $(, $fields)?; $( $part { $($body)* } )+
        }
    )+};
    (
        @one
        $(#[doc = $doc:expr])*
        $event:ident: $input:ident, $output:ident, $fields:ident;
        input { $($in:tt)* }
        $(may { $($may:tt)* })?
        output { $($(#[doc = $odoc:expr])* $ofield:ident: $oty:ty $(= $wire:literal)?,)+ }
    ) => {
        $crate::control::hook::define::event! {
            @event ($($doc,)*) $event, $input, $output, $fields, { $($in)* } { $($($may)*)? }
        }

        #[doc = concat!("`hookSpecificOutput` of a [`", stringify!($event), "`] hook.")]
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        #[allow(missing_docs, reason = "fields are named as on the wire")]
        #[non_exhaustive]
        pub struct $fields {
            $(
                $(#[doc = $odoc])*
                #[serde($(rename = $wire,)? skip_serializing_if = "Option::is_none")]
                pub $ofield: Option<$oty>,
            )+
        }

        impl $crate::control::hook::Output<$event> {
            $(
                #[doc = concat!("Sets [`", stringify!($ofield), "`](", stringify!($fields), "::", stringify!($ofield), ").")]
                ///
                $(#[doc = $odoc])*
                pub fn $ofield(mut self, value: impl Into<$oty>) -> Self {
                    self.fields.$ofield = Some(value.into());
                    self
                }
            )+
        }
    };
    (
        @one
        $(#[doc = $doc:expr])*
        $event:ident: $input:ident, $output:ident;
        input { $($in:tt)* }
        $(may { $($may:tt)* })?
    ) => {
        $crate::control::hook::define::event! {
            @event ($($doc,)*) $event, $input, $output, NoFields, { $($in)* } { $($($may)*)? }
        }
    };
    (
        @event ($($doc:expr,)*) $event:ident, $input:ident, $output:ident, $fields:ident,
        { $($(#[doc = $idoc:expr])* $ifield:ident: $ity:ty,)* }
        { $($(#[doc = $mdoc:expr])* $mfield:ident: $mty:ty,)* }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $event;

        impl $crate::control::hook::EventType for $event {
            const NAME: &'static str = stringify!($event);
            type Input = $input;
            type Fields = $crate::control::hook::$fields;
        }

        #[doc = concat!("Answer of a [`", stringify!($event), "`] hook.")]
        pub type $output = $crate::control::hook::Output<$event>;

        $crate::control::fields::requests! {
            #[doc = concat!("Input of a [`", stringify!($event), "`] hook.")]
            input $input {
                $( $(#[doc = $idoc])* need $ifield: $ity, )*
                $( $(#[doc = $mdoc])* may $mfield: $mty, )*
                /// The fields that all events share.
                common common: $crate::control::hook::Common,
            }
        }
    };
}
pub(crate) use event;
