# Types for step_converter.py, which is compiled.
from rlwire.dm_env_rpc.spaces cimport Structure


cdef class StepConverter:
    cdef str _name
    cdef bint _is_dm_env, _infos
    cdef Structure _observations, _actions, _reward, _discount
    cdef object _info_spec, _info_codec, _specs
    cdef dict _first_signals, _defaults
    cdef tuple _extra_uids

    cpdef object action(self, dict actions)
    cpdef object first(self, object observation, object info)
    cpdef object stepped(self, object observation, object reward, object terminated,
                         object truncated, object info)
    cdef object _result(self, object state, object observation, object reward, object discount,
                        object info)
