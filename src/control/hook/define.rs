//! How an event is written down: its name, what a hook is told there, and what it may answer.
//!
//! ```text
//! event! {
//!     /// What it is.
//!     PreToolUse: PreToolUseInput, PreToolUseOutput, PreToolUseFields;
//!     sample "{…}";                      what the CLI sends, for the example and the tests
//!     input { tool_name: String, }       without one of these the hook fails
//!     may { duration_ms: u64, }          an `Option`; left in `extra` if it has another shape
//!     output { additional_context: String, updated_mcp: Value = "updatedMCP", }
//! }
//! ```

macro_rules! event {
    (
        $(#[doc = $doc:expr])*
        $event:ident: $input:ident, $output:ident, $fields:ident;
        sample $sample:literal;
        input { $($in:tt)* }
        may { $($may:tt)* }
        output { $($(#[doc = $odoc:expr])* $ofield:ident: $oty:ty $(= $wire:literal)?,)+ }
    ) => {
        $crate::control::hook::define::event! {
            @event ($($doc,)*) $event, $input, $output, $fields, $sample, { $($in)* } { $($may)* }
        }

        #[doc = concat!("What a hook may answer at [`", stringify!($event), "`] only (`hookSpecificOutput`).")]
        ///
        /// ```
        #[doc = concat!("let fields = greenroom::hook::", stringify!($fields), "::default();")]
        /// assert_eq!(serde_json::to_value(fields)?, serde_json::json!({}));
        /// # Ok::<(), serde_json::Error>(())
        /// ```
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
        #[serde(rename_all = "camelCase")]
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
                $(#[doc = $odoc])*
                pub fn $ofield(mut self, value: impl Into<$oty>) -> Self {
                    self.fields.$ofield = Some(value.into());
                    self
                }
            )+
        }
    };
    (
        $(#[doc = $doc:expr])*
        $event:ident: $input:ident, $output:ident;
        sample $sample:literal;
        input { $($in:tt)* }
        may { $($may:tt)* }
    ) => {
        $crate::control::hook::define::event! {
            @event ($($doc,)*) $event, $input, $output, NoFields, $sample, { $($in)* } { $($may)* }
        }
    };
    (
        @event ($($doc:expr,)*) $event:ident, $input:ident, $output:ident, $fields:ident, $sample:literal,
        { $($(#[doc = $idoc:expr])* $ifield:ident: $ity:ty,)* }
        { $($(#[doc = $mdoc:expr])* $mfield:ident: $mty:ty,)* }
    ) => {
        $(#[doc = $doc])*
        ///
        /// ```
        #[doc = concat!("use greenroom::hook::{self, Hook, ", stringify!($output), "};")]
        ///
        #[doc = concat!("let hook = Hook::on(hook::", stringify!($event), ", async |input, _cx| {")]
        ///     println!("{input:?}");
        #[doc = concat!("    ", stringify!($output), "::pass()")]
        /// });
        /// # let _ = hook;
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $event;

        impl $crate::control::hook::Event for $event {
            const NAME: &'static str = stringify!($event);
            type Input = $input;
            type Fields = $crate::control::hook::$fields;
        }

        #[doc = concat!("What a hook at [`", stringify!($event), "`] answers.")]
        pub type $output = $crate::control::hook::Output<$event>;

        #[doc = concat!("What a hook at [`", stringify!($event), "`] is told.")]
        ///
        /// ```
        #[doc = concat!("let input: greenroom::hook::", stringify!($input), " =")]
        #[doc = concat!("    serde_json::from_str(r#\"", $sample, "\"#)?;")]
        /// assert!(input.extra.is_empty());
        /// # Ok::<(), serde_json::Error>(())
        /// ```
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct $input {
            $(
                $(#[doc = $idoc])*
                pub $ifield: $ity,
            )*
            $(
                $(#[doc = $mdoc])*
                pub $mfield: Option<$mty>,
            )*
            /// What hooks of all events are told.
            pub common: $crate::control::hook::Common,
            /// Every other field, as it came.
            pub extra: serde_json::Map<String, serde_json::Value>,
        }

        impl serde::Serialize for $input {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let mut map = serde::Serializer::serialize_map(to, None)?;
                $($crate::control::fields::write(&mut map, stringify!($ifield), &self.$ifield)?;)*
                $(
                    if let Some(value) = &self.$mfield {
                        $crate::control::fields::write(&mut map, stringify!($mfield), value)?;
                    }
                )*
                self.common.write(&mut map, &[$(stringify!($ifield)),*])?;
                for (name, value) in &self.extra {
                    serde::ser::SerializeMap::serialize_entry(&mut map, name, value)?;
                }
                serde::ser::SerializeMap::end(map)
            }
        }

        impl<'de> serde::Deserialize<'de> for $input {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let mut fields = $crate::control::fields::Fields::read(from)?;
                Ok(Self {
                    $($ifield: fields.need(stringify!($ifield))?,)*
                    $($mfield: fields.may(stringify!($mfield)),)*
                    common: fields.common(),
                    extra: fields.rest(),
                })
            }
        }

        #[cfg(test)]
        impl $crate::control::hook::tests::Sampled for $event {
            const SAMPLE: &'static str = $sample;
            const NEEDS: &'static [&'static str] = &[$(stringify!($ifield)),*];
        }
    };
}
pub(crate) use event;
