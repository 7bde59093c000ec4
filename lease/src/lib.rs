//! Leadership through a Kubernetes Lease (design: leadership and fencing).
