# What Fedora's cmake package gives rpm, for systems whose rpm has it not (Debian's):
# packaging/build-rpm.sh loads it there, so that the spec need not know. Nor has that rpm
# packages of debug information, so what is installed is stripped.
%__cmake_builddir build-%{_target_cpu}
%cmake \
    CFLAGS="${CFLAGS:-%{optflags}}" ; export CFLAGS ; \
    cmake -S . -B %{__cmake_builddir} -DCMAKE_INSTALL_PREFIX=%{_prefix} \\\
        -DCMAKE_INSTALL_LIBDIR=%{_lib} -DCMAKE_INSTALL_SO_NO_EXE=0
%cmake_build cmake --build %{__cmake_builddir} %{?_smp_mflags}
%cmake_install DESTDIR=%{buildroot} cmake --install %{__cmake_builddir} --strip
%ctest ctest --test-dir %{__cmake_builddir} --output-on-failure %{?_smp_mflags}
