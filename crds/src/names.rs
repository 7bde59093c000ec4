//! Names, labels and annotations: one place for what several programs must spell the same way.

/// API group.
pub const GROUP: &str = "store.mooncake.io";
/// Kind.
pub const KIND: &str = "MooncakeMaster";
/// The one field manager of the operator's server-side apply.
pub const FIELD_MANAGER: &str = "mooncake-operator";

/// Label on the pod of the active, value [`ROLE_LEADER`]; the Service selects by it.
pub const LABEL_ROLE: &str = "mooncake.io/store-role";
/// The only value of [`LABEL_ROLE`]; on every other pod the label is absent.
pub const ROLE_LEADER: &str = "leader";
/// Label on a pod: the hash of the template that it was made from.
pub const LABEL_TEMPLATE_HASH: &str = "mooncake.io/template-hash";
/// Standard label: the application, value [`APP_NAME`].
pub const LABEL_APP: &str = "app.kubernetes.io/name";
/// Value of [`LABEL_APP`] on everything made for a `MooncakeMaster`.
pub const APP_NAME: &str = "mooncake-master";
/// Standard label: the name of the `MooncakeMaster`.
pub const LABEL_INSTANCE: &str = "app.kubernetes.io/instance";
/// Standard label: who made the object, value [`FIELD_MANAGER`].
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Longest name of a `MooncakeMaster`, in characters. The StatefulSet controller puts `<name>-<10 characters>` into a
/// label value, which may have 63.
pub const MAX_NAME_LENGTH: usize = 52;
/// Most replicas. Ordinals stay one digit long, and each master's Role names all of them in advance.
pub const MAX_REPLICAS: i32 = 9;

/// The headless Service with an address for every pod, ready or not.
pub fn pods_service(name: &str) -> String {
    format!("{name}-pods")
}

/// ServiceAccount, Role and RoleBinding of the master processes.
pub fn master_account(name: &str) -> String {
    format!("{name}-master")
}

/// The pod with that ordinal.
pub fn pod(name: &str, ordinal: i32) -> String {
    format!("{name}-{ordinal}")
}

/// The ordinal in a pod's name, `None` for a pod that is not one of `name`'s.
pub fn ordinal(name: &str, pod: &str) -> Option<i32> {
    let digits = pod.strip_prefix(name)?.strip_prefix('-')?;
    let ordinal: i32 = digits.parse().ok()?;
    // "01" and "+1" are not what the StatefulSet controller writes.
    (ordinal.to_string() == digits).then_some(ordinal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_derived_name_fits_at_the_longest_name() {
        let name = "n".repeat(MAX_NAME_LENGTH);
        assert!(pods_service(&name).len() <= 63);
        assert!(master_account(&name).len() <= 63);
        assert!(pod(&name, MAX_REPLICAS - 1).len() <= 63);
        assert_eq!(format!("{name}-{}", "h".repeat(10)).len(), 63, "the label controller-revision-hash");
    }

    #[test]
    fn only_a_controllers_pod_names_have_an_ordinal() {
        assert_eq!(ordinal("a", "a-0"), Some(0));
        assert_eq!(ordinal("a", "a-12"), Some(12));
        for pod in ["a", "a-", "a-01", "a-+1", "ab-0", "a-b-0", "b-0"] {
            assert_eq!(ordinal("a", pod), None, "{pod}");
        }
        assert_eq!(ordinal("a-b", "a-b-0"), Some(0));
    }
}
