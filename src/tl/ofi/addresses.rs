//! The addresses that an endpoint has inserted in its address vector.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;

/// Each address is inserted once: a provider may return one number for an address that is inserted twice, and forget it
/// when it is removed once. A peer that connects again does so while its former connection is ended.
#[derive(Debug, Default)]
pub struct OfiAddresses {
    /// The number of each address, and how many connections use it.
    inserted: HashMap<Arc<[u8]>, (u64, u32)>,
}

impl OfiAddresses {
    /// The number of an address for one connection more, and the address, by which the connection releases it. `insert`
    /// inserts an address that is not inserted yet.
    ///
    /// # Errors
    /// Those of `insert`.
    pub fn take<E>(
        &mut self,
        name: &[u8],
        insert: impl FnOnce() -> Result<u64, E>,
    ) -> Result<(u64, Arc<[u8]>), E> {
        if let Some((name, (addr, uses))) = self.inserted.get_key_value(name) {
            let (name, addr, uses) = (name.clone(), *addr, *uses + 1);
            self.inserted.insert(name.clone(), (addr, uses));
            return Ok((addr, name));
        }
        let (addr, name) = (insert()?, Arc::from(name));
        self.inserted.insert(Arc::clone(&name), (addr, 1));
        Ok((addr, name))
    }

    /// A connection does not use an address any more. Returns its number if no other does: it is to be removed.
    pub fn release(&mut self, name: &Arc<[u8]>) -> Option<u64> {
        let (addr, uses) = self.inserted.get_mut(name)?;
        *uses -= 1;
        let addr = (*uses == 0).then_some(*addr)?;
        self.inserted.remove(name);
        Some(addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_inserted_once_and_removed_with_its_last_use() {
        let mut addresses = OfiAddresses::default();
        let (first, name) = addresses.take(b"a", || Ok::<_, ()>(7)).unwrap();
        let again = addresses.take(b"a", || Err(())).unwrap();
        assert_eq!((first, &again), (7, &(7, name.clone())));
        assert!(addresses.take(b"b", || Err(())).is_err());
        assert_eq!(addresses.release(&name), None);
        assert_eq!(addresses.release(&name), Some(7));
        assert_eq!(addresses.release(&name), None);
        assert_eq!(addresses.take(b"a", || Ok::<_, ()>(8)).unwrap().0, 8);
    }
}
