"""The tensor codec at C level, as tensors.py is at Python's."""

from rlwire.codecs.dm_env_rpc.dtypes cimport data_type_of, dtype_of_kind, kind_of, shown_kind
from rlwire.codecs.dm_env_rpc.tensor_decoder cimport (TensorOptions, fill_options, look, read,
                                                      read_flat, take)
from rlwire.codecs.dm_env_rpc.tensor_encoder cimport (Tensor, measure, measure_as, measure_flat,
                                                      release, write, write_head, write_tail)
